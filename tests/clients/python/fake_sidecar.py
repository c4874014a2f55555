"""A small sidecar that takes the rules of `ConsumerService.Consume` seriously, and remembers what it saw."""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from offramp.v1 import consumer_pb2 as pb
from offramp.v1 import consumer_pb2_grpc, publish_pb2, publish_pb2_grpc
from offramp.v1 import record_pb2 as rec
from tests.error_details import error_details

#: seconds; far longer than anything here takes
WAIT_TIMEOUT = 30.0

_AGAIN = {rec.OUTCOME_NACK: 1, rec.OUTCOME_RELEASE: 0, rec.OUTCOME_OVERLOADED: 0}


@dataclass
class PendingBatch:
    """Records that are to be delivered together."""

    records: list[rec.Record]
    attempt: int = 1
    possibly_processed: bool = False


@dataclass
class Lease:
    pending: PendingBatch
    session: "Session"
    left: set[int]


@dataclass(eq=False)
class Session:
    """One client's stream, as this side saw it."""

    hello: pb.Hello
    credit: int
    requests: list[pb.ConsumeRequest] = field(default_factory=list)
    unsettled: set[bytes] = field(default_factory=set)
    draining: bool = False
    #: there is nothing more to read: the client has left, or died
    read_all: bool = False
    half_closed: bool = False
    ended: bool = False
    out: pb.ConsumeResponse = field(default_factory=pb.ConsumeResponse)
    #: leases of batches that were sent, in order
    sent: list[bytes] = field(default_factory=list)

    @property
    def settlements(self) -> list[rec.Settlement]:
        return [one for request in self.requests for one in request.settlements]


class FakeSidecar(consumer_pb2_grpc.ConsumerServiceServicer, publish_pb2_grpc.PublishServiceServicer):
    """Delivers what is `offer`ed, keeps to the credit, and redelivers what was not acked or rejected.

    What a client does against the rules is in `violations`; a test that ends with any has failed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = f"unix:{path}"
        self.sessions: list[Session] = []
        self.ready: deque[PendingBatch] = deque()
        #: (value, outcome, reason, retry_after_ms) of each record, in the order in which they were settled
        self.outcomes: list[tuple[bytes, str, str, int | None]] = []
        self.violations: list[str] = []
        self.published: list[publish_pb2.PublishRequest] = []
        #: by the index of a message: a result that says that it is not published
        self.not_published: dict[int, publish_pb2.Published] = {}
        #: aborts every call; with a reason, as a sidecar does
        self.refuse: tuple[grpc.StatusCode, str] | None = None
        self.reason = ""
        self.retryable = False
        #: answers instead of the truth
        self.answer: Callable[[rec.Settlement], Any] | None = None
        #: settlements are read but neither counted nor answered
        self.deaf = False
        #: a half-close is not answered either
        self.stay_open = False
        #: batches that are on their way when the client says that it drains
        self.crossing: list[PendingBatch] = []
        self.max_request_bytes = 4 << 20
        self.limits_asked = 0
        self._leases: dict[bytes, Lease] = {}
        self._server: grpc.aio.Server | None = None
        self._boot = b""
        self._counter = 0
        self._changed = asyncio.Condition()

    # For tests

    async def start(self) -> None:
        self._boot = os.urandom(8)
        self._leases.clear()
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", self.max_request_bytes)])
        consumer_pb2_grpc.add_ConsumerServiceServicer_to_server(self, self._server)
        publish_pb2_grpc.add_PublishServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.address)
        await self._server.start()

    async def stop(self) -> None:
        """As abruptly as gRPC can. Returns when all sessions are over, with what they held ready again."""
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None
            await self.until(lambda: all(session.ended for session in self.sessions))

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def offer(self, *values: Iterable[bytes], **about: Any) -> None:
        """Each argument is a batch."""
        for batch in values:
            records = []
            for value in batch:
                records.append(rec.Record(value=value, lane=0, position=self._counter))
                self._counter += 1
            self.ready.append(PendingBatch(records, **about))
        await self._notify()

    async def notice(self, kind: Any, leases: Iterable[bytes] = (), detail: str = "", settle_for_ms: int = 0) -> None:
        notice = pb.Notice(kind=kind, leases=leases, detail=detail, settle_for_ms=settle_for_ms)
        self.sessions[-1].out.notices.append(notice)
        await self._notify()

    async def until(self, what: Callable[[], Any]) -> None:
        """Returns when it is true."""
        async with asyncio.timeout(WAIT_TIMEOUT), self._changed:
            await self._changed.wait_for(what)

    def of(self, outcome: str) -> list[bytes]:
        """Values of the records that were settled so."""
        return [value for value, said, _, _ in self.outcomes if said == outcome]

    async def begun(self, session: int = 0) -> Session:
        """That session, once it is there."""
        await self.until(lambda: len(self.sessions) > session)
        return self.sessions[session]

    # The services

    async def Publish(  # noqa: N802 - gRPC looks for this name
        self, request: publish_pb2.PublishRequest, context: Any
    ) -> publish_pb2.PublishResponse:
        if self.refuse:
            await self._abort(context, *self.refuse)
        self.published.append(request)
        places = [
            self.not_published.get(
                place, publish_pb2.Published(lane=1, position=place, status=publish_pb2.PUBLISH_STATUS_PUBLISHED)
            )
            for place, _ in enumerate(request.messages)
        ]
        return publish_pb2.PublishResponse(published=places)

    async def GetLimits(  # noqa: N802 - gRPC looks for this name
        self, request: publish_pb2.GetLimitsRequest, context: Any
    ) -> publish_pb2.GetLimitsResponse:
        self.limits_asked += 1
        return publish_pb2.GetLimitsResponse(max_request_bytes=self.max_request_bytes, max_messages=10_000)

    async def _abort(self, context: Any, code: grpc.StatusCode, text: str) -> None:
        details = error_details(code, text, self.reason, retryable=self.retryable) if self.reason else ()
        await context.abort(code, text, details)

    async def Consume(self, requests: Any, context: Any) -> None:  # noqa: N802 - gRPC looks for this name
        if self.refuse:
            await self._abort(context, *self.refuse)
        first = await context.read()
        if not first.HasField("hello") or first.hello.client.language != "python":
            self.violations.append("the first request has no proper hello")
        session = Session(first.hello, first.hello.credit.batches)
        limits = pb.Limits(max_request_bytes=self.max_request_bytes, max_request_entries=10_000)
        session.out.welcome.CopyFrom(
            pb.Welcome(session=os.urandom(16), boot=self._boot, sidecar_version="fake", limits=limits)
        )
        self.sessions.append(session)
        writer = asyncio.create_task(self._write(session, context))
        try:
            while isinstance(request := await context.read(), pb.ConsumeRequest):
                session.requests.append(request)
                self._apply(session, request)
                await self._notify()
            session.read_all = True
            await self._notify()
            await writer
            # A client that died looks like one that has left, except that nothing can be written to it.
            await context.write(pb.ConsumeResponse())
            session.half_closed = True
        finally:
            writer.cancel()
            self._end(session)
            session.ended = True
            await self._notify()

    async def _write(self, session: Session, context: Any) -> None:
        while True:
            self._deliver(session)
            if session.out.ByteSize():
                response, session.out = session.out, pb.ConsumeResponse()
                await context.write(response)
                await self._notify()
                continue
            if session.read_all and not self.stay_open:
                return
            async with self._changed:
                await self._changed.wait_for(lambda: self._has_news(session))

    def _has_news(self, session: Session) -> bool:
        room = len(session.unsettled) < session.credit and not session.draining
        return bool(session.out.ByteSize() or (session.read_all and not self.stay_open) or (self.ready and room))

    def _deliver(self, session: Session) -> None:
        while self.ready and len(session.unsettled) < session.credit and not session.draining:
            pending = self.ready.popleft()
            lease = self._boot + os.urandom(8)
            self._leases[lease] = Lease(pending, session, set(range(len(pending.records))))
            session.unsettled.add(lease)
            session.sent.append(lease)
            batch = rec.Batch(lease=lease, topic="orders", lanes=[0], records=pending.records)
            batch.lease_for_ms = session.hello.lease_ms
            if pending.attempt > 1 or pending.possibly_processed:
                batch.redeliveries.add(
                    count=len(pending.records),
                    attempt=pending.attempt,
                    possibly_processed=pending.possibly_processed,
                )
            session.out.batches.append(batch)

    def _apply(self, session: Session, request: pb.ConsumeRequest) -> None:
        if request.HasField("hello"):
            self.violations.append("a second hello")
        if session.draining and request.HasField("credit"):
            self.violations.append("credit after draining")
        if not request.ByteSize():
            self.violations.append("an empty request")
        if not self.deaf:
            for settlement in request.settlements:
                session.out.results.append(self._settle(settlement))
        for extension in request.extensions:
            known = extension.lease in self._leases
            status = rec.EXTEND_STATUS_EXTENDED if known else rec.EXTEND_STATUS_UNKNOWN
            session.out.extended.add(lease=extension.lease, status=status, lease_for_ms=extension.lease_for_ms)
        if request.draining:
            self.ready.extendleft(self.crossing)
            session.credit += len(self.crossing)
            self.crossing.clear()
            self._deliver(session)
        if request.HasField("credit"):
            session.credit = request.credit.batches
        session.draining = session.draining or request.draining

    def _settle(self, settlement: rec.Settlement) -> rec.SettleResult:
        self._check(settlement)
        if self.answer is not None and (status := self.answer(settlement)) is not None:
            return rec.SettleResult(lease=settlement.lease, status=status, detail="as the test says")
        lease = self._leases.get(settlement.lease)
        if lease is None:
            return rec.SettleResult(lease=settlement.lease, status=rec.SETTLE_STATUS_UNKNOWN, detail="no such lease")
        spoken = {index: part for part in settlement.parts for index in range(part.first, part.first + part.count)}
        again: dict[int, list[rec.Record]] = {}
        for index in sorted(lease.left if not settlement.partial else spoken):
            if index not in lease.left:
                self.violations.append(f"record {index} settled twice")
                continue
            said = spoken.get(index, settlement)
            record = lease.pending.records[index]
            after = said.retry_after_ms if said.HasField("retry_after_ms") else None
            outcome = rec.Outcome.Name(said.outcome).removeprefix("OUTCOME_")
            self.outcomes.append((record.value, outcome, said.reason, after))
            lease.left.discard(index)
            if said.outcome in _AGAIN:
                again.setdefault(_AGAIN[said.outcome], []).append(record)
        for counted, records in again.items():
            self.ready.append(PendingBatch(records, lease.pending.attempt + counted, lease.pending.possibly_processed))
        if not lease.left:
            del self._leases[settlement.lease]
            lease.session.unsettled.discard(settlement.lease)
        return rec.SettleResult(lease=settlement.lease, status=rec.SETTLE_STATUS_SETTLED)

    def _check(self, settlement: rec.Settlement) -> None:
        if settlement.partial == bool(settlement.outcome):
            self.violations.append("partial and outcome contradict each other")
        if settlement.partial and not settlement.parts:
            self.violations.append("partial without parts")
        lease = self._leases.get(settlement.lease)
        records = len(lease.pending.records) if lease else 1 << 31
        stop, before = 0, None
        for part in settlement.parts:
            said = (part.outcome, part.reason, part.retry_after_ms)
            if part.first < stop or not part.count or part.first + part.count > records:
                self.violations.append(f"parts are not ascending, or not within the batch: {settlement}")
            if part.first == stop and said == before:
                self.violations.append(f"neighbouring parts were not merged: {settlement}")
            stop, before = part.first + part.count, said

    def _end(self, session: Session) -> None:
        """Leases end with the session: released if the client left in order, else possibly processed."""
        for id_, lease in list(self._leases.items()):
            if lease.session is session:
                del self._leases[id_]
                records = [lease.pending.records[index] for index in sorted(lease.left)]
                lost = not session.half_closed
                pending = PendingBatch(records, lease.pending.attempt + lost, lease.pending.possibly_processed or lost)
                self.ready.appendleft(pending)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@contextlib.asynccontextmanager
async def fake_sidecar(folder: Path, max_request_bytes: int = 4 << 20) -> AsyncIterator[FakeSidecar]:
    """One on the running loop. The test fails if a client broke a rule."""
    fake = FakeSidecar(folder / "s")
    fake.max_request_bytes = max_request_bytes
    await fake.start()
    try:
        yield fake
        assert fake.violations == []
    finally:
        await fake.stop()
