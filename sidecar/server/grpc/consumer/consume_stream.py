"""A session over one stream: `ConsumerService.Consume`."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc.aio

from offramp.v1 import consumer_pb2 as pb
from sidecar.model.errors import InvalidRequest, ProtocolError, Stopping, Superseded
from sidecar.model.records import Delivery, Notice, SessionEnd, SettleResult
from sidecar.model.wire import CONSUME_BATCH_TAG, encode_batch
from sidecar.server.grpc import responses
from sidecar.server.grpc.consumer import sessions, settling
from sidecar.server.grpc.consumer.resumption import SUPERSEDED, Absence, ResumableSessions
from sidecar.server.grpc.consumer.sessions import NO_CREDIT, Terms
from sidecar.server.grpc.requests import read_acks, read_credit
from sidecar.server.grpc.rpc import Context, parse, read
from sidecar.server.grpc.slow_clients import StreamWriter
from sidecar.server.subscriptions import SubscriptionRegistry
from sidecar.subscription.session import Consumer, Session
from sidecar.subscription.subscription import Subscription

METHOD = "Consume"
#: seconds that a write which is under way may take when the client breaks a rule
_LAST_WRITE_TIMEOUT = 1.0
#: bytes of a frame: enough to make gRPC's cost per message small, little enough to keep other streams moving
FRAME_BYTES = 1 << 20
#: bytes of unwritten batches at which no further one is delivered: enough to keep the connection busy
MAX_BATCH_BYTES = 4 << 20
#: bytes of unwritten answers at which no further request of the client is read
MAX_ANSWER_BYTES = 1 << 20


async def read_hello(context: Context) -> pb.ConsumeRequest:
    """The first request of a stream, which must carry hello. Raises `InvalidRequest`."""
    raw = await read(context)
    if raw is None:
        raise InvalidRequest(f"{METHOD}: the stream ended before its first request, which must carry hello")
    request = parse(pb.ConsumeRequest, raw, METHOD)
    if not request.HasField("hello"):
        raise InvalidRequest(f"{METHOD}: the first request must carry hello")
    return request


def _first_credit(hello: pb.Hello) -> pb.Credit:
    return hello.credit if hello.HasField("credit") else pb.Credit(batches=1)


class ConsumeStream(Consumer):
    """One client's stream: one task reads it, one writes it, and both end with it."""

    def __init__(
        self,
        context: Context,
        writer: StreamWriter,
        subscription: Subscription,
        registry: SubscriptionRegistry,
        terms: Terms,
        resumable: ResumableSessions,
        former: Session | None = None,
    ) -> None:
        """`former`: the session that the client resumes, or None for a new one."""
        self._context = context
        self._writer = writer
        self._subscription = subscription
        self._registry = registry
        self._outbox = Outbox(terms.max_message_bytes)
        self._resumable = resumable
        # The credit of the first request is granted once its settlements have been read.
        if former is None:
            self._session = sessions.connect(subscription, self, terms)
        else:
            self._session = former
            former.grant(NO_CREDIT)
            missed = former.consumer.notices.take() if isinstance(former.consumer, Absence) else ()
            sessions.reconnect(subscription, former, self, terms)
            for notice in missed:
                self.notify(notice)
        self._stopping = False
        #: the client has said that it leaves
        self._leaving = False
        #: the task that reads, until another stream has the session
        self._reading: asyncio.Task[None] | None = None
        self._superseded = False
        self._disconnected = False
        self._resumed = former is not None
        #: the client has the welcome: without it, it could not resume the session
        self._welcomed = self._resumed

    def deliver(self, delivery: Delivery) -> None:
        self._outbox.add_delivery(delivery)
        if self._outbox.full:
            self._session.set_backpressure(True)

    def notify(self, notice: Notice) -> None:
        pieces = responses.split_notice(notice, self._outbox.frame_bytes)
        self._outbox.add_answers([responses.notice(responses.CONSUME_NOTICES, piece) for piece in pieces])

    def stop(self) -> None:
        """The sidecar stops: end the stream with UNAVAILABLE once every answer is written."""
        self._stopping = True
        self._outbox.close()

    def supersede(self) -> None:
        """Another stream has the session. This one ends with SUPERSEDED; what it has not written goes back."""
        self._superseded = True
        self._outbox.close()
        sessions.release(self._subscription, self._outbox.take_back())
        if self._reading is not None:
            self._reading.cancel()

    async def run(self, first: pb.ConsumeRequest, welcome: Callable[[Session, int], pb.Welcome]) -> None:
        """Returns when the client has ended its stream in order; is cancelled when the client is gone. Raises
        `Superseded`."""
        how = SessionEnd.LOST
        tasks: list[asyncio.Task[None]] = []
        hello, session = first.hello, self._session
        try:
            grace = self._resumable.connected(self._subscription, session, self, hello.resume_ms)
            welcomed = welcome(session, grace).SerializeToString()
            self._outbox.add_answers([responses.field(responses.CONSUME_WELCOME, welcomed)])
            if self._resumed:
                self._subscription.keep_only(session, frozenset(hello.held))
            self._reading = asyncio.create_task(self._read(first))
            tasks = [self._reading, asyncio.create_task(self._write())]
            await asyncio.gather(*tasks)
            how = SessionEnd.ORDERLY
        except (asyncio.CancelledError, grpc.aio.BaseError):
            # The connection is lost, or reading was cancelled.
            if self._superseded and not _is_cancelled():
                await self._finish_writing(tasks[1:])
                raise Superseded(SUPERSEDED) from None
            self._disconnected = not self._superseded
            raise
        except ProtocolError:
            if not self._superseded:
                session.stop_deliveries()
            await self._finish_writing(tasks[1:])
            raise
        finally:
            for task in tasks:
                task.cancel()
            self._end(how)

    def _end(self, how: SessionEnd) -> None:
        if self._superseded:
            return
        sessions.release(self._subscription, self._outbox.take_back())
        waits = self._disconnected and self._welcomed and not self._leaving
        if waits and self._resumable.keep(self._session, Absence()):
            return
        self._resumable.ended(self._session)
        sessions.end(self._subscription, self._session, how)

    async def _finish_writing(self, writing: Sequence[asyncio.Task[None]]) -> None:
        """gRPC drops a status that is sent while a write is under way, even if that is cancelled, and the client would
        wait forever. The wait is short if the client does not read."""
        self._outbox.close()
        if writing:
            await asyncio.wait(writing, timeout=_LAST_WRITE_TIMEOUT)

    async def _read(self, first: pb.ConsumeRequest) -> None:
        await self._apply(first, first.credit if first.HasField("credit") else _first_credit(first.hello))
        while (raw := await read(self._context)) is not None:
            self._welcomed = True
            acks = read_acks(raw)
            if acks is not None:
                self._answer(self._registry.settle(acks))
            else:
                request = parse(pb.ConsumeRequest, raw, METHOD)
                if request.HasField("hello"):
                    raise InvalidRequest(f"{METHOD}: only the first request may carry hello")
                await self._apply(request, request.credit if request.HasField("credit") else None)
            self._subscription.deliver_at_once()
            await self._outbox.room()
        self._take_no_more()
        self._outbox.close()

    async def _write(self) -> None:
        while await self._outbox.filled():
            frame, leases = self._outbox.take()
            if not self._outbox.full:
                self._session.set_backpressure(False)
            await self._writer.write(frame)
            if leases:
                self._subscription.written(leases)
        if self._stopping:
            raise Stopping("the sidecar is stopping")
        # gRPC reports the same end of stream for a half-close and for a client that died. Only a write tells them
        # apart: it fails, or this task is cancelled, if the client is gone. An empty response changes nothing.
        await self._writer.write(b"")

    async def _apply(self, request: pb.ConsumeRequest, credit: pb.Credit | None) -> None:
        if request.settlements:
            self._answer(await settling.settle(self._registry, request.settlements))
        if request.extensions:
            extended = await settling.extend(self._registry, request.extensions)
            self._outbox.add_answers([responses.extend_result(responses.CONSUME_EXTENDED, one) for one in extended])
        if request.draining:
            self._leaving = True
            self._take_no_more()
        elif credit is not None:
            # Last, because settling makes room for it.
            self._session.grant(read_credit(credit))

    def _answer(self, results: Sequence[SettleResult]) -> None:
        self._outbox.add_answers([responses.settle_result(responses.CONSUME_RESULTS, result) for result in results])

    def _take_no_more(self) -> None:
        """The client wants no further batch, not even one that is on its way."""
        self._session.stop_deliveries()
        sessions.release(self._subscription, self._outbox.take_back())


def _is_cancelled() -> bool:
    """Whether the call itself was cancelled, rather than something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _Batch(NamedTuple):
    lease: bytes
    pieces: list[bytes]
    #: bytes of the pieces
    size: int


class Outbox:
    """What waits to be written to one stream, joined into few frames. Owned by one stream; one task takes from it.

    A client that does not read costs little memory, whatever it asks for and settles: with too many bytes of unwritten
    batches it is sent no more, and with too many bytes of unwritten answers its requests are not read.
    """

    def __init__(self, max_message_bytes: int) -> None:
        #: no answer may be larger
        self.frame_bytes = min(FRAME_BYTES, max_message_bytes)
        #: encoded fields, in the order in which they must arrive
        self._answers: deque[bytes] = deque()
        self._answers_bytes = 0
        self._batches: deque[_Batch] = deque()
        self._batches_bytes = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False

    def add_answers(self, fields: Sequence[bytes]) -> None:
        self._answers.extend(fields)
        self._answers_bytes += sum(map(len, fields))
        if self._answers_bytes > MAX_ANSWER_BYTES:
            self._room.clear()
        self._changed.set()

    def add_delivery(self, delivery: Delivery) -> None:
        pieces, size = encode_batch(CONSUME_BATCH_TAG, delivery)
        self._batches.append(_Batch(delivery.lease, pieces, size))
        self._batches_bytes += size
        self._changed.set()

    @property
    def full(self) -> bool:
        """No further batch should be delivered."""
        return self._batches_bytes >= MAX_BATCH_BYTES

    def take_back(self) -> list[bytes]:
        """Remove the batches that were not taken for writing. Returns their leases."""
        leases = [batch.lease for batch in self._batches]
        self._batches.clear()
        self._batches_bytes = 0
        return leases

    def close(self) -> None:
        """Nothing is added any more. What is in here may still be taken."""
        self._closed = True
        self._changed.set()

    async def room(self) -> None:
        """Returns when there is room for more answers."""
        await self._room.wait()

    async def filled(self) -> bool:
        """Returns when there is something to take, or False when there never will be."""
        while not (self._answers or self._batches or self._closed):
            self._changed.clear()
            await self._changed.wait()
        return bool(self._answers or self._batches)

    def take(self) -> tuple[bytes, list[bytes]]:
        """The next frame, and the leases of the batches in it. Answers go first: workers wait for them."""
        pieces: list[bytes] = []
        size = 0
        while self._answers and (not pieces or size + len(self._answers[0]) <= self.frame_bytes):
            answer = self._answers.popleft()
            pieces.append(answer)
            size += len(answer)
        self._answers_bytes -= size
        if self._answers_bytes <= MAX_ANSWER_BYTES:
            self._room.set()
        leases: list[bytes] = []
        while self._batches and (not pieces or size + self._batches[0].size <= self.frame_bytes):
            batch = self._batches.popleft()
            leases.append(batch.lease)
            pieces.extend(batch.pieces)
            size += batch.size
            self._batches_bytes -= batch.size
        return b"".join(pieces), leases
