"""
Move a subscription, or one topic or lane of it, to another position. Leases of these lanes become stale.

  offramp seek orders --start
  offramp seek orders --end --topic orders --lane 3
  offramp seek orders --time 2025-06-01T12:00:00+02:00
  offramp seek orders --ago 1h
  offramp seek orders --position 1200 --topic orders --lane 3
"""

import argparse
import sys
import time

from offramp.v1 import admin_pb2
from sidecar.cli.cleaned import cleaned
from sidecar.cli.connection import CALL_TIMEOUT, connect
from sidecar.cli.parser import add_address, duration, timestamp
from sidecar.model.text import columns


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION")
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--start", action="store_true", help="the first record that the broker still has")
    to.add_argument("--end", action="store_true", help="after the last record")
    to.add_argument("--position", type=_position, metavar="N", help="this position, or the nearest that the lane has")
    to.add_argument("--time", type=timestamp, metavar="TIME", help="ISO 8601; without a zone it is UTC")
    to.add_argument("--ago", type=duration, metavar="DURATION", help="this long ago, such as 90s or 1h")
    parser.add_argument("--topic", default="", help="only this topic")
    parser.add_argument("--lane", type=_position, metavar="N", help="only this lane")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as sidecar:
        lanes = cleaned(sidecar.admin.Seek(_request(args), timeout=CALL_TIMEOUT)).lanes
    rows = [("lane", "position"), *((f"{lane.topic}/{lane.lane}", str(lane.position)) for lane in lanes)]
    print("\n".join(columns(rows, right=(1,))))
    for lane in lanes:
        if args.position is not None and lane.position != args.position:
            where = f"{lane.topic}/{lane.lane}"
            print(f"{where} has no position {args.position}: it continues at {lane.position}", file=sys.stderr)
    return 0


def _request(args: argparse.Namespace) -> admin_pb2.SeekRequest:
    request = admin_pb2.SeekRequest(subscription=args.subscription, topic=args.topic, lane=args.lane)
    if args.start:
        request.start.SetInParent()
    elif args.end:
        request.end.SetInParent()
    elif args.position is not None:
        request.position = args.position
    elif args.time is not None:
        request.timestamp_ms = args.time
    else:
        request.timestamp_ms = int((time.time() - args.ago) * 1000)
    return request


def _position(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number')
    return int(text)
