"""
Show what a running sidecar is doing: problems first, then each subscription with its lanes and workers.

  offramp status
  offramp status orders
  offramp status --json | jq '.subscriptions[].would_be_replayed'
"""

import argparse
import sys

from offramp.v1 import admin_pb2
from sidecar.cli.cleaned import cleaned
from sidecar.cli.connection import CALL_TIMEOUT, connect
from sidecar.cli.json_lines import plain, to_json
from sidecar.cli.parser import add_address
from sidecar.cli.status_text import report
from sidecar.cli.terminal import Ink


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION", nargs="?", default="", help="only this subscription")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as sidecar:
        request = admin_pb2.GetStatusRequest(subscription=args.subscription)
        status = sidecar.admin.GetStatus(request, timeout=CALL_TIMEOUT).status
    if args.json:
        print(to_json(plain(status)))
    else:
        print("\n".join(report(cleaned(status), sidecar.address, Ink(sys.stdout.isatty()))))
    return 0
