"""
Go on with a subscription: after `offramp pause`, after too many rejects, or at once while it is probing.

  offramp resume orders
"""

import argparse

from offramp.v1 import admin_pb2
from sidecar.cli.connection import TIMEOUT, connect
from sidecar.cli.parser import add_address


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as sidecar:
        sidecar.admin.Resume(admin_pb2.ResumeRequest(subscription=args.subscription), timeout=TIMEOUT)
    print(f"{args.subscription} goes on")
    return 0
