"""
Delete a group of the local broker, so that retention no longer keeps records for it. The group of a subscription
of the sidecar cannot be deleted.

  offramp delete-group old-reports
"""

import argparse

from offramp.v1 import admin_pb2
from sidecar.cli.connection import CALL_TIMEOUT, connect
from sidecar.cli.parser import add_address


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--broker", default="local", help="name of the broker in the configuration (default: local)")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as sidecar:
        request = admin_pb2.DeleteGroupRequest(broker=args.broker, group=args.group)
        sidecar.admin.DeleteGroup(request, timeout=CALL_TIMEOUT)
    print(f"group {args.group} of {args.broker} is deleted")
    return 0
