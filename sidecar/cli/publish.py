"""
Send messages: one for each line of stdin or of a file. Answered when the broker has them durably.

  echo hello | offramp publish --topic orders
  offramp publish --subscription orders --topic orders --key customer-7 --file orders.txt
  offramp publish --topic orders --json < orders.jsonl

With --json each line is an object, {"key": "k", "value": "v", "headers": {"n": "v"}, "lane": 3}, of which nothing
is required. A value that is not text is sent as JSON, null is null, and key_base64 and value_base64 take bytes.
Lines of `offramp consume` can be sent as they are.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from offramp.v1 import publish_pb2, record_pb2
from sidecar.cli.connection import TIMEOUT, CallError, Stubs, answered, connect
from sidecar.cli.lines import LineBatch, parse_header, parse_message, read_batches
from sidecar.cli.parser import add_address
from sidecar.model.errors import OfframpError
from sidecar.model.text import columns, plural

_BATCH_LINES = 1_000
_BATCH_BYTES = 1 << 20
_STDIN, _STDIN_FD = "-", 0


def arguments(parser: argparse.ArgumentParser) -> None:
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--subscription", metavar="NAME", help="to the broker of this subscription")
    target.add_argument("--broker", metavar="NAME", default="local", help="to this broker (default: local)")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--key", help="the key of every message that has none of its own")
    parser.add_argument(
        "--header", type=_header, action="append", default=[], metavar="NAME=VALUE", help="on every message"
    )
    parser.add_argument("--file", default=_STDIN, metavar="FILE", help="where the lines are (default: -, stdin)")
    parser.add_argument("--json", action="store_true", help="lines are JSON objects")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with _input(args.file) as fd, connect(args) as sidecar:
        if os.isatty(fd):
            print("one message a line, Ctrl-D ends", file=sys.stderr)
        places = _Places()
        try:
            _publish_all(fd, sidecar, args, places)
        finally:
            places.end_progress()
    print(f"published {plural(places.total, 'message')} to {args.topic}")
    for line in places.lines():
        print(f"  {line}")
    return 0


def _publish_all(fd: int, sidecar: Stubs, args: argparse.Namespace, places: "_Places") -> None:
    for batch in read_batches(fd, _BATCH_LINES, _BATCH_BYTES):
        try:
            # One call at a time: two could overtake each other, and lines have an order.
            with answered(sidecar.address):
                response = sidecar.publish.Publish(_request(args, batch), timeout=2 * TIMEOUT)
        except CallError as error:
            raise CallError(f"{error} ({_in_doubt(batch)})", gone=error.gone) from error
        except OfframpError as error:
            raise OfframpError(f"{error}; {plural(places.total, 'message')} before were published") from error
        places.add(response.published)


def _in_doubt(batch: LineBatch) -> str:
    last = batch.first + len(batch.lines) - 1
    lines = f"line {last}" if last == batch.first else f"lines {batch.first} to {last}"
    return f"{lines} may not be published" + ("; all before are" if batch.first > 1 else "")


def _request(args: argparse.Namespace, batch: LineBatch) -> publish_pb2.PublishRequest:
    messages = [_message(args, line, batch.first + index) for index, line in enumerate(batch.lines)]
    if args.subscription:
        return publish_pb2.PublishRequest(subscription=args.subscription, topic=args.topic, messages=messages)
    return publish_pb2.PublishRequest(broker=args.broker, topic=args.topic, messages=messages)


def _message(args: argparse.Namespace, line: bytes, number: int) -> publish_pb2.Message:
    message = parse_message(line, number) if args.json else publish_pb2.Message(value=line)
    if args.key is not None and not message.HasField("key"):
        message.key = os.fsencode(args.key)
    message.headers.extend(args.header)
    return message


class _Places:
    """Where messages went: for each lane how many, and from where to where."""

    def __init__(self) -> None:
        self.total = 0
        self._lanes: dict[int, tuple[int, int, int]] = {}
        self._progress = sys.stderr.isatty()
        self._shown = False

    def add(self, published: "list[publish_pb2.Published]") -> None:
        for place in published:
            number, first, last = self._lanes.get(place.lane, (0, place.position, place.position))
            self._lanes[place.lane] = (number + 1, min(first, place.position), max(last, place.position))
        self.total += len(published)
        if self._progress and self.total > _BATCH_LINES:
            self._shown = True
            print(f"\r{self.total:,} published", end="", file=sys.stderr, flush=True)

    def end_progress(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def lines(self) -> list[str]:
        if not self._lanes:
            return []
        rows = [("lane", "messages", "positions")]
        for lane, (number, first, last) in sorted(self._lanes.items()):
            span = "not told" if first < 0 else str(first) if first == last else f"{first} to {last}"
            rows.append((str(lane), f"{number:,}", span))
        return columns(rows, right=(0, 1))


@contextmanager
def _input(name: str) -> Iterator[int]:
    if name == _STDIN:
        yield _STDIN_FD
        return
    try:
        fd = os.open(name, os.O_RDONLY)
    except OSError as error:
        raise OfframpError(f"{name}: {(error.strerror or str(error)).lower()}") from None
    try:
        yield fd
    except IsADirectoryError:
        raise OfframpError(f"{name}: is a folder, not a file") from None
    finally:
        os.close(fd)


def _header(text: str) -> record_pb2.Header:
    try:
        return parse_header(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
