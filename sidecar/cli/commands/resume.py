"""
Resume the deliveries of a subscription after `offramp pause`, after too many rejects, or during an outage, instead of
waiting for the next probe.

  offramp resume orders
"""

import argparse

from offramp.v1 import admin_pb2
from sidecar.cli.connection import CALL_TIMEOUT, connect
from sidecar.cli.parser import add_address


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as sidecar:
        sidecar.admin.Resume(admin_pb2.ResumeRequest(subscription=args.subscription), timeout=CALL_TIMEOUT)
    print(f"{args.subscription} is resumed")
    return 0
