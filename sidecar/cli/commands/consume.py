"""
Write records of a subscription to stdout, one JSON object a line. A record is acked once the pipe has taken its whole
line. When the reader closes the pipe, the rest is released and goes to another worker.

  offramp consume orders
  offramp consume orders --count 10 | jq .value
  offramp consume orders --idle 5s > orders.jsonl      until nothing arrived for five seconds
  offramp consume orders --count 10 --peek             look at them, and release them all

Keys, values and header values are text if they are UTF-8, else base64 under key_base64 and value_base64; null stays
null. An ack means that the pipe has the line; Offramp cannot see what its reader does with it.
"""

import argparse
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from offramp.v1 import consumer_pb2, record_pb2
from sidecar.cli.connection import CALL_TIMEOUT, MAX_MESSAGE_BYTES, CallError, Stubs, connect, errors_as_sentences
from sidecar.cli.json_lines import batch_lines
from sidecar.cli.parser import add_address, count, duration
from sidecar.model.text import clean, plural
from sidecar.model.version import PROTOCOL_MINOR, VERSION

#: milliseconds that a call waits for records; the pipe and the signals are checked between calls
_WAIT_MS = 500
#: a pipe that polls as writable takes this many bytes without blocking
_CHUNK = select.PIPE_BUF
_POLL_MS = 100
#: seconds to finish a half-written line after a signal
_FINISH_LINE_TIMEOUT = 1.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION")
    parser.add_argument("--count", type=count, metavar="N", help="end after N records")
    parser.add_argument("--idle", type=duration, metavar="DURATION", help="end when nothing arrived for this long")
    parser.add_argument("--peek", action="store_true", help="ack nothing: release every record at the end")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    sys.stdout.flush()
    with connect(args) as sidecar, _signals() as stopped, _session(sidecar, args.subscription) as session:
        pipe = _Pipe(sidecar, session, LineSink(sys.stdout.fileno()), stopped, peek=args.peek)
        try:
            pipe.run(args.count, args.idle)
        except CallError as error:
            if error.connection_lost and pipe.unsettled:
                raise CallError(
                    f"{error}. {plural(pipe.unsettled, 'written record')} may be delivered again"
                ) from error
            raise
    return 0


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Within the context Ctrl-C and SIGTERM do not interrupt: the function yielded tells whether one has arrived."""
    stopped = threading.Event()
    before = {
        number: signal.signal(number, lambda number, frame: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stopped.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _session(sidecar: Stubs, subscription: str) -> Iterator[bytes]:
    """A session: when this process ends, however it does, its records are redelivered at once."""
    client = consumer_pb2.Client(
        language="python",
        library="offramp-sidecar",
        version=VERSION,
        protocol_minor=PROTOCOL_MINOR,
        pid=os.getpid(),
        name=f"offramp consume, pid {os.getpid()}",
    )
    stream = sidecar.consumer.Open(
        consumer_pb2.OpenRequest(subscription=subscription, client=client, max_message_bytes=MAX_MESSAGE_BYTES)
    )
    try:
        yield next(stream).welcome.session
    except StopIteration:
        raise CallError(f"the sidecar at {sidecar.address} is stopping", connection_lost=True) from None
    finally:
        stream.cancel()


class LineSink:
    """Writes lines to a pipe whose reader may be slow or close it, and counts those that the pipe took."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        #: the reader closed the pipe
        self.reader_gone = False

    def check_reader(self) -> None:
        """Updates `reader_gone` without writing."""
        events = self._poll.poll(0)
        self.reader_gone = self.reader_gone or any(event & (select.POLLERR | select.POLLHUP) for _, event in events)

    def write(self, lines: Sequence[bytes], stopped: Callable[[], bool]) -> int:
        """Writes lines until all are taken, the reader is gone, or `stopped` is true. Returns how many were taken.

        A line counts once the pipe has all of it. Blocks while the reader does not read, but polls `stopped`: then
        only a line that is half written is finished, if the reader takes it in time.
        """
        for number, line in enumerate(lines):
            if self.reader_gone or stopped() or not self._write_line(line, stopped):
                return number
        return len(lines)

    def _write_line(self, line: bytes, stopped: Callable[[], bool]) -> bool:
        view, deadline = memoryview(line), None
        while view:
            if not self._poll.poll(_POLL_MS):
                now = time.monotonic()
                if stopped() and deadline is None:
                    deadline = now + _FINISH_LINE_TIMEOUT
                if deadline is not None and (now >= deadline or len(view) == len(line)):
                    return False
                continue
            try:
                view = view[os.write(self._fd, view[:_CHUNK]) :]
            except BrokenPipeError:
                self.reader_gone = True
                return False
        return True


class _Pipe:
    """Copies batches from the sidecar to stdout. What the pipe took is settled with the next call."""

    def __init__(
        self, sidecar: Stubs, session: bytes, sink: LineSink, stopped: Callable[[], bool], *, peek: bool
    ) -> None:
        self._sidecar = sidecar
        self._session = session
        self._sink = sink
        self._stopped = stopped
        self._peek = peek
        self._seq = 0
        self._due: list[record_pb2.Settlement] = []
        self._peeked: list[record_pb2.Settlement] = []
        #: written records whose settlement is not confirmed yet
        self.unsettled = 0

    def run(self, most: int | None, idle: float | None) -> None:
        """Runs until `most` records are written, none came for `idle` seconds, the reader is gone, or a signal came."""
        left, last = most, time.monotonic()
        while not self._over(left):
            batches = self._fetch(idle)
            for batch in batches:
                written = self._write(batch, left)
                left = None if left is None else left - written
            if batches:
                last = time.monotonic()
            elif idle is not None and time.monotonic() - last >= idle:
                break
        self._settle()

    def _over(self, left: int | None) -> bool:
        self._sink.check_reader()
        return left == 0 or self._sink.reader_gone or self._stopped()

    def _fetch(self, idle: float | None) -> Sequence[record_pb2.Batch]:
        self._seq += 1
        request = consumer_pb2.FetchRequest(
            session=self._session,
            seq=self._seq,
            settlements=self._due,
            want=consumer_pb2.Credit(batches=1),
            wait_ms=_WAIT_MS if idle is None else min(_WAIT_MS, max(1, int(idle * 1000))),
        )
        with errors_as_sentences(self._sidecar.address):
            response = self._sidecar.consumer.Fetch(request, timeout=CALL_TIMEOUT)
        self._settled(response.results)
        for notice in response.notices:
            # If the sidecar is stopping, the next call fails and says so.
            if notice.detail and notice.kind != consumer_pb2.NOTICE_KIND_DRAINING:
                print(f"offramp: {clean(notice.detail)}", file=sys.stderr)
        batches: Sequence[record_pb2.Batch] = response.batches
        return batches

    def _write(self, batch: record_pb2.Batch, left: int | None) -> int:
        lines = batch_lines(batch)
        written = self._sink.write(lines if left is None else lines[:left], self._stopped)
        self.unsettled += written
        if self._peek:
            # Released only at the end: released now, they would be delivered to this session again.
            self._peeked.append(_settlement(batch, 0))
        else:
            self._due.append(_settlement(batch, written))
        return written

    def _settle(self) -> None:
        """The last settlements. Without them, the end of the session would count as a failure of what is unsettled."""
        due = self._due + self._peeked
        if due:
            with errors_as_sentences(self._sidecar.address):
                request = consumer_pb2.SettleRequest(settlements=due)
                self._settled(self._sidecar.consumer.Settle(request, timeout=CALL_TIMEOUT).results)

    def _settled(self, results: Sequence[record_pb2.SettleResult]) -> None:
        late = [result for result in results if result.status != record_pb2.SETTLE_STATUS_SETTLED]
        # A peek releases everything anyway.
        for result in [] if self._peek else late:
            why = clean(result.detail) or "the lease had expired"
            print(f"offramp: written records will be delivered again: {why}", file=sys.stderr)
        if results:
            self._due.clear()
            self.unsettled = 0


def _settlement(batch: record_pb2.Batch, written: int) -> record_pb2.Settlement:
    """Acks the written records and releases the others."""
    if written == len(batch.records):
        return record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_ACK)
    acked = [record_pb2.Part(first=0, count=written, outcome=record_pb2.OUTCOME_ACK)] if written else []
    return record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_RELEASE, parts=acked)
