"""
Publish messages, one for each line of stdin or of a file. Returns when the broker has stored them durably.

  echo hello | offramp publish --topic orders
  offramp publish --subscription orders --topic orders --key customer-7 --file orders.txt
  offramp publish --topic orders --json < orders.jsonl

With --json each line is an object such as {"key": "k", "value": "v", "headers": {"n": "v"}, "lane": 3}; every field
is optional. A value that is not text is sent as JSON, null is null, and key_base64 and value_base64 take bytes.
Lines that `offramp consume` wrote are accepted as they are.
"""

import argparse
import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from offramp.v1 import publish_pb2, record_pb2
from sidecar.cli.connection import CALL_TIMEOUT, CallError, Stubs, connect, errors_as_sentences
from sidecar.cli.json_lines import parse_message
from sidecar.cli.parser import add_address
from sidecar.model.errors import OfframpError
from sidecar.model.text import columns, plural

_BATCH_LINES = 1_000
#: numbers of lines in an error
_MOST_NAMED = 10
_BATCH_BYTES = 1 << 20
_STDIN, _STDIN_FD = "-", 0
_READ_BYTES = 1 << 18
#: a longer line is an error, because it would fill the memory
_MAX_LINE_BYTES = 64 << 20
#: seconds to wait for more input before the lines read so far are sent
_LINGER = 0.02


def arguments(parser: argparse.ArgumentParser) -> None:
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--subscription", metavar="NAME", help="publish to the broker of this subscription")
    target.add_argument("--broker", metavar="NAME", default="local", help="publish to this broker (default: local)")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--key", help="key of every message that has none")
    parser.add_argument(
        "--header",
        type=_header,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="header of every message; may be repeated",
    )
    parser.add_argument("--file", default=_STDIN, metavar="FILE", help="file to read (default: -, which is stdin)")
    parser.add_argument("--json", action="store_true", help="read each line as a JSON object")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with _input(args.file) as fd, connect(args) as sidecar:
        if os.isatty(fd):
            print("one message a line, Ctrl-D ends", file=sys.stderr)
        tally = _Tally()
        try:
            _publish_all(fd, sidecar, args, tally)
        finally:
            tally.end_progress()
    print(f"published {plural(tally.total, 'message')} to {args.topic}")
    for line in tally.lines():
        print(f"  {line}")
    return 0


def _publish_all(fd: int, sidecar: Stubs, args: argparse.Namespace, tally: "_Tally") -> None:
    for batch in read_batches(fd, _BATCH_LINES, _BATCH_BYTES):
        try:
            # One call at a time, because two could overtake each other, and the lines have an order.
            with errors_as_sentences(sidecar.address):
                response = sidecar.publish.Publish(_request(args, batch), timeout=2 * CALL_TIMEOUT)
        except CallError as error:
            raise CallError(f"{error} ({_in_doubt(batch)})", connection_lost=error.connection_lost) from error
        except OfframpError as error:
            raise OfframpError(f"{error}; {plural(tally.total, 'message')} before were published") from error
        placed = [one for one in response.published if one.status == publish_pb2.PUBLISH_STATUS_PUBLISHED]
        tally.add(placed)
        if len(placed) < len(response.published):
            raise OfframpError(_not_published(batch, response.published))


class LineBatch(NamedTuple):
    #: the number of the first line, from 1
    first: int
    lines: list[bytes]


def read_batches(fd: int, most_lines: int, most_bytes: int) -> Iterator[LineBatch]:
    """The lines of a file or pipe in order, without line ends.

    A batch has at most `most_lines` lines and, unless it is a single larger line, at most `most_bytes` bytes. From a
    pipe a batch comes as soon as the writer pauses, so that `tail -f` works.
    """
    first, held, at_end = 1, 0, False
    lines: list[bytes] = []
    rest: list[bytes] = []
    while not at_end:
        chunk = os.read(fd, _READ_BYTES)
        at_end = not chunk
        *whole, tail = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join((*rest, whole[0]))
            rest = []
        rest.append(tail)
        if sum(map(len, rest)) > _MAX_LINE_BYTES:
            raise OfframpError(f"line {first + len(lines)} is longer than {_MAX_LINE_BYTES >> 20} MiB")
        if at_end and any(rest):
            whole = [b"".join(rest)]
        for line in whole:
            if lines and (len(lines) >= most_lines or held + len(line) > most_bytes):
                yield LineBatch(first, lines)
                first, lines, held = first + len(lines), [], 0
            lines.append(line)
            held += len(line)
        if lines and (at_end or not select.select([fd], [], [], _LINGER)[0]):
            yield LineBatch(first, lines)
            first, lines, held = first + len(lines), [], 0


def _in_doubt(batch: LineBatch) -> str:
    last = batch.first + len(batch.lines) - 1
    lines = f"line {last}" if last == batch.first else f"lines {batch.first} to {last}"
    return f"{lines} may not be published" + ("; all before are" if batch.first > 1 else "")


def _not_published(batch: LineBatch, results: Sequence[publish_pb2.Published]) -> str:
    failed = [
        (batch.first + index, one)
        for index, one in enumerate(results)
        if one.status != publish_pb2.PUBLISH_STATUS_PUBLISHED
    ]
    numbers = ", ".join(str(number) for number, _ in failed[:_MOST_NAMED]) + (", ..." if failed[_MOST_NAMED:] else "")
    last = batch.first + len(batch.lines) - 1
    return (
        f"{plural(len(failed), 'line')} may not be published ({numbers}): {failed[0][1].detail}; "
        f"all others up to line {last} are, and none after it"
    )


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


class _Tally:
    """What was published: the number of messages of each lane, and their first and last positions."""

    def __init__(self) -> None:
        self.total = 0
        self._lanes: dict[int, tuple[int, int, int]] = {}
        self._progress = sys.stderr.isatty()
        self._shown = False

    def add(self, published: Sequence[publish_pb2.Published]) -> None:
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
            positions = "unknown" if first < 0 else str(first) if first == last else f"{first} to {last}"
            rows.append((str(lane), f"{number:,}", positions))
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
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f'"{text}" is not name=value')
    return record_pb2.Header(name=name, value=os.fsencode(value))
