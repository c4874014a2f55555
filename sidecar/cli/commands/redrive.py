"""
Send dead letters back to the group of their subscription, and to no other group. They stay in the dead-letter topic,
so redriving them again delivers them again.

  offramp redrive orders --id orders/3/1200 --id orders/3/1201
  offramp redrive orders --all
"""

import argparse

from offramp.v1 import admin_pb2
from sidecar.cli.connection import CALL_TIMEOUT, connect
from sidecar.cli.parser import add_address
from sidecar.model.errors import OfframpError
from sidecar.model.text import plural


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--id", dest="ids", action="append", metavar="ID", help="this dead letter; may be repeated")
    which.add_argument("--all", action="store_true", help="every dead letter")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as sidecar:
        request = admin_pb2.RedriveRequest(subscription=args.subscription, ids=args.ids or (), all=args.all)
        # Slow for a large dead-letter topic, which is read and written as a whole.
        redriven = sidecar.admin.Redrive(request, timeout=60 * CALL_TIMEOUT).redriven
    print(f"{plural(redriven, 'dead letter')} of {args.subscription} sent back")
    if args.ids and redriven < len(set(args.ids)):
        which = f"{args.ids[0]} is" if len(set(args.ids)) == 1 else f"of these ids {len(set(args.ids)) - redriven} are"
        raise OfframpError(f"{which} not among its dead letters; `offramp dead-letters` lists them")
    return 0
