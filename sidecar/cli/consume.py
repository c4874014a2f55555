"""
Take records of a subscription and write them to stdout, one JSON object a line. A record is acked once the reader
of the pipe has taken its line; when the reader goes away, the rest is released and somebody else gets it.

  offramp consume orders
  offramp consume orders --count 10 | jq .value
  offramp consume orders --idle 5s > orders.jsonl      until nothing came for five seconds
  offramp consume orders --count 10 --peek             look, and give all of them back

Keys, values and header values are text where they are UTF-8, and base64 under key_base64 and value_base64 where
they are not; null stays null. What is behind a pipe's reader Offramp cannot see: taken means that the pipe has it.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from offramp.v1 import consumer_pb2, record_pb2
from sidecar.cli.connection import MAX_MESSAGE_BYTES, TIMEOUT, CallError, Stubs, answered, connect
from sidecar.cli.messages import batch_lines
from sidecar.cli.parser import add_address, count, duration
from sidecar.cli.sink import LineSink
from sidecar.model.text import plural
from sidecar.model.version import PROTOCOL_MINOR, VERSION

#: how long a call waits for records; between calls the reader and the signals are looked at
_WAIT_MS = 500


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION")
    parser.add_argument("--count", type=count, metavar="N", help="end after so many records")
    parser.add_argument("--idle", type=duration, metavar="DURATION", help="end when nothing came for so long")
    parser.add_argument("--peek", action="store_true", help="ack nothing: give every record back at the end")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    sys.stdout.flush()
    with connect(args) as sidecar, _signals() as stop, _session(sidecar, args.subscription) as session:
        pipe = _Pipe(sidecar, session, LineSink(sys.stdout.fileno()), stop, peek=args.peek)
        try:
            pipe.pump(args.count, args.idle)
        except CallError as error:
            if error.gone and pipe.unsettled:
                raise CallError(f"{error}. {plural(pipe.unsettled, 'written record')} may come again") from error
            raise
    return 0


class Stop:
    """Set by a signal; looked at between and during writes."""

    def __init__(self) -> None:
        self.told = False

    def __call__(self) -> bool:
        return self.told


@contextmanager
def _signals() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM end the work in order instead of breaking it off."""
    stop = Stop()

    def tell(number: int, frame: object) -> None:
        stop.told = True

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _session(sidecar: Stubs, subscription: str) -> Iterator[bytes]:
    """A session of our own: however this process ends, its records come back at once."""
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
        raise CallError(f"the sidecar at {sidecar.address} is stopping", gone=True) from None
    finally:
        stream.cancel()


class _Pipe:
    """From the sidecar to stdout: what the reader took is settled with the next call."""

    def __init__(self, sidecar: Stubs, session: bytes, sink: LineSink, stop: Stop, *, peek: bool) -> None:
        self._sidecar = sidecar
        self._session = session
        self._sink = sink
        self._stop = stop
        self._peek = peek
        self._seq = 0
        self._due: list[record_pb2.Settlement] = []
        self._looked_at: list[record_pb2.Settlement] = []
        #: records that are written and whose settlement has not been answered
        self.unsettled = 0

    def pump(self, most: int | None, idle: float | None) -> None:
        """Until so many records are written, nothing came for so long, the reader is gone, or a signal came."""
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
        self._sink.look()
        return left == 0 or self._sink.gone or self._stop()

    def _fetch(self, idle: float | None) -> Sequence[record_pb2.Batch]:
        self._seq += 1
        request = consumer_pb2.FetchRequest(
            session=self._session,
            seq=self._seq,
            settlements=self._due,
            want=consumer_pb2.Credit(batches=1),
            wait_ms=_WAIT_MS if idle is None else min(_WAIT_MS, max(1, int(idle * 1000))),
        )
        with answered(self._sidecar.address):
            response = self._sidecar.consumer.Fetch(request, timeout=TIMEOUT)
        self._settled(response.results)
        for notice in response.notices:
            # That the sidecar is stopping the next call will say, as an error.
            if notice.detail and notice.kind != consumer_pb2.NOTICE_KIND_DRAINING:
                print(f"offramp: {notice.detail}", file=sys.stderr)
        batches: Sequence[record_pb2.Batch] = response.batches
        return batches

    def _write(self, batch: record_pb2.Batch, left: int | None) -> int:
        lines = batch_lines(batch)
        written = self._sink.write(lines if left is None else lines[:left], self._stop)
        self.unsettled += written
        if self._peek:
            # Released at once they would only come again.
            self._looked_at.append(_settlement(batch, 0))
        else:
            self._due.append(_settlement(batch, written))
        return written

    def _settle(self) -> None:
        """The last word: without it, the end of the session would count as a failure of what is unsettled."""
        due = self._due + self._looked_at
        if due:
            with answered(self._sidecar.address):
                request = consumer_pb2.SettleRequest(settlements=due)
                self._settled(self._sidecar.consumer.Settle(request, timeout=TIMEOUT).results)

    def _settled(self, results: Sequence[record_pb2.SettleResult]) -> None:
        late = [result for result in results if result.status != record_pb2.SETTLE_STATUS_SETTLED]
        # A peek leaves everything to others anyway.
        for result in [] if self._peek else late:
            why = result.detail or "the lease was over"
            print(f"offramp: records that were written will come again: {why}", file=sys.stderr)
        if results:
            self._due.clear()
            self.unsettled = 0


def _settlement(batch: record_pb2.Batch, written: int) -> record_pb2.Settlement:
    """Ack what was written, release the rest."""
    if written == len(batch.records):
        return record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_ACK)
    acked = [record_pb2.Part(first=0, count=written, outcome=record_pb2.OUTCOME_ACK)] if written else []
    return record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_RELEASE, parts=acked)
