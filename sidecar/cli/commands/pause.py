"""
Stop the deliveries of a subscription until `offramp resume` or a restart of the sidecar. Workers may still settle
what they hold.

  offramp pause orders --reason "the warehouse is closed"
"""

import argparse

from offramp.v1 import admin_pb2
from sidecar.cli.connection import CALL_TIMEOUT, connect
from sidecar.cli.parser import add_address


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION")
    parser.add_argument("--reason", default="", help="shown in the status and to the workers")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as sidecar:
        sidecar.admin.Pause(
            admin_pb2.PauseRequest(subscription=args.subscription, reason=args.reason), timeout=CALL_TIMEOUT
        )
    print(f"{args.subscription} is paused")
    return 0
