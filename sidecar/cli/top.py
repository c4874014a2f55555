"""
A live view of a running sidecar: rates, lanes and how far behind they are, what is in flight, and trouble.

  offramp top
  offramp top orders --interval 500ms
  offramp top | tee top.log        without a terminal: a line for each subscription, again and again

q or Ctrl-C quits, the arrow keys scroll.
"""

import argparse
import sys
from contextlib import suppress
from datetime import datetime

from offramp.v1 import admin_pb2
from sidecar.cli.connection import address_of, connect, knock
from sidecar.cli.frame import summary
from sidecar.cli.parser import add_address, duration
from sidecar.cli.screen import Screen
from sidecar.cli.watching import Watcher, watch_request


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION", nargs="?", default="", help="only this one")
    parser.add_argument(
        "--interval", type=duration, default=1.0, metavar="DURATION", help="100ms or more (default: 1s)"
    )
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with suppress(KeyboardInterrupt):
        if sys.stdout.isatty() and sys.stdin.isatty():
            # Later the view outlives its sidecar, but it should not begin with one that is not there.
            knock(address_of(args))
            with Watcher(args) as watcher, Screen() as screen:
                screen.show(watcher)
        else:
            _print_lines(args)
    return 0


def _print_lines(args: argparse.Namespace) -> None:
    before: admin_pb2.Status | None = None
    with connect(args) as sidecar:
        for response in sidecar.admin.WatchStatus(watch_request(args)):
            for line in summary(response.status, before):
                print(f"{datetime.now():%H:%M:%S} {line}", flush=True)
            before = response.status
