"""
Send dead letters back to the group of their subscription, and to no other group. They stay in the dead-letter topic,
marked: `--all` leaves out what was sent back before and has not died again, so it can be repeated after an error.

  offramp redrive orders --id orders/3/1200 --id orders/3/1201
  offramp redrive orders --all
  offramp redrive orders --all --reason timeout --since 2025-06-01T12:00:00Z
"""

import argparse

from offramp.v1 import admin_pb2
from sidecar.cli.connection import connect
from sidecar.cli.dead_letter_choice import add_choice, check_found, read_filter, watched
from sidecar.cli.parser import add_address
from sidecar.model.text import plural


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION")
    add_choice(parser)
    parser.add_argument("--again", action="store_true", help="also those that were sent back before")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    request = admin_pb2.RedriveRequest(
        subscription=args.subscription, ids=args.ids or (), all=args.all, filter=read_filter(args), again=args.again
    )
    with connect(args) as sidecar:
        # A dead-letter topic may be large: there is no limit on the time, but every step is told.
        end = watched(sidecar.admin.Redrive(request), lambda step: f"{step.redriven:,} sent back")
    skipped = f" ({end.skipped:,} left out that were sent back before: --again)" if end.skipped else ""
    print(f"{plural(end.redriven, 'dead letter')} of {args.subscription} sent back{skipped}")
    check_found(args, end.redriven)
    return 0
