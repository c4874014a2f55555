"""
Forget a group of the local broker, so that retention no longer keeps records for it. A group that a subscription
of the sidecar consumes under cannot be forgotten.

  offramp delete-group old-reports
"""

import argparse

from offramp.v1 import admin_pb2
from sidecar.cli.connection import TIMEOUT, connect
from sidecar.cli.parser import add_address


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--broker", default="local", help="a broker of the configuration (default: local)")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as sidecar:
        request = admin_pb2.DeleteGroupRequest(broker=args.broker, group=args.group)
        sidecar.admin.DeleteGroup(request, timeout=TIMEOUT)
    print(f"{args.broker} has forgotten the group {args.group}")
    return 0
