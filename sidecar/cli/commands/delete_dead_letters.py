"""
Delete dead letters: they are no longer listed or sent back, unless their records die again. In the dead-letter topic
they are marked as deleted; their bytes stay there until the broker's retention removes them.

  offramp delete-dead-letters orders --id orders/3/1200
  offramp delete-dead-letters orders --all --until 2025-06-01T12:00:00Z
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
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    request = admin_pb2.DeleteDeadLettersRequest(
        subscription=args.subscription, ids=args.ids or (), all=args.all, filter=read_filter(args)
    )
    with connect(args) as sidecar:
        end = watched(sidecar.admin.DeleteDeadLetters(request), lambda step: f"{step.deleted:,} deleted")
    print(f"{plural(end.deleted, 'dead letter')} of {args.subscription} deleted")
    check_found(args, end.deleted)
    return 0
