"""Sessions for processes that block while they work (`Open`), and the calls that bring them batches (`Fetch`)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import grpc.aio

from offramp.v1 import consumer_pb2 as pb
from sidecar.model.errors import InvalidRequest, OutOfTurn, ResourceExhausted, Stopping, Superseded, TooManyEntries
from sidecar.model.records import Credit, Delivery, Notice, NoticeKind, SessionEnd, SettleResult
from sidecar.model.wire import FETCH_BATCH_TAG, encode_batch
from sidecar.server.grpc import responses
from sidecar.server.grpc.consumer import sessions, settling
from sidecar.server.grpc.consumer.pending_notices import PendingNotices
from sidecar.server.grpc.consumer.resumption import SUPERSEDED, ResumableSessions
from sidecar.server.grpc.consumer.sessions import NO_CREDIT, Terms, read_terms
from sidecar.server.grpc.requests import read_credit, read_message_bytes
from sidecar.server.grpc.slow_clients import StreamWriter
from sidecar.server.subscriptions import SubscriptionRegistry
from sidecar.subscription.session import Consumer
from sidecar.subscription.subscription import Subscription

#: seconds that a call waits for its first batch at the most
MAX_WAIT = 60.0
STOPPING = "the sidecar is stopping"


@dataclass(frozen=True, slots=True)
class FetchDemand:
    """What one call may bring."""

    credit: Credit
    #: on the loop's clock: when the call gives up
    until: float

    @classmethod
    def of(cls, request: pb.FetchRequest) -> "FetchDemand":
        wait = min(request.wait_ms / 1_000, MAX_WAIT)
        credit = read_credit(request.want) if request.HasField("want") else Credit(1)
        return cls(credit, asyncio.get_running_loop().time() + wait)


class BatchWaiter(Consumer):
    """A `Consumer` that collects what the subscription delivers until a call takes it."""

    def __init__(self) -> None:
        self._deliveries: list[Delivery] = []
        self._notices = PendingNotices()
        self._changed = asyncio.Event()
        self.draining = False

    def deliver(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)
        self._changed.set()

    def notify(self, notice: Notice) -> None:
        self._notices.add(notice)
        if notice.kind is NoticeKind.DRAINING:
            # No batch will come, so no call should wait for one. Other notices can wait for the next response.
            self.draining = True
            self._changed.set()

    def wake(self) -> None:
        """Wake the call that waits, so that it checks whether another has replaced it."""
        self._changed.set()

    async def change(self, until: float) -> bool:
        """Returns True at the next change or when `ready`, and False when the time is over."""
        if self.ready:
            return True
        self._changed.clear()
        try:
            async with asyncio.timeout_at(until):
                return await self._changed.wait()
        except TimeoutError:
            return False

    @property
    def ready(self) -> bool:
        """There is no reason to wait any longer."""
        return bool(self._deliveries) or self.draining

    def undelivered(self) -> list[bytes]:
        """Leases that no response carries so far."""
        return [delivery.lease for delivery in self._deliveries]

    def take_back(self) -> list[bytes]:
        """Remove the batches that no response carries. Returns their leases."""
        leases = self.undelivered()
        self._deliveries.clear()
        return leases

    def respond(self, results: Sequence[SettleResult], batches: int, limit: int) -> tuple[bytes, list[bytes]]:
        """A FetchResponse of at most `batches` batches and `limit` bytes, and the leases in it.

        A batch alone goes in whatever its size: the subscription keeps it within the client's limit. Beside results it
        goes in only if it fits; the caller gives back what is left over. Notices that do not fit wait for the next one.
        """
        pieces = responses.settle_results(responses.FETCH_RESULTS, results, limit)
        room = limit - sum(map(len, pieces))
        for notice in self._notices.take():
            for piece in responses.split_notice(notice, limit):
                encoded = responses.notice(responses.FETCH_NOTICES, piece)
                if len(encoded) <= room:
                    pieces.append(encoded)
                    room -= len(encoded)
                else:
                    self._notices.add(piece)
        leases: list[bytes] = []
        while self._deliveries and len(leases) < batches:
            batch, size = encode_batch(FETCH_BATCH_TAG, self._deliveries[0])
            room -= size
            if pieces and room < 0:
                break
            pieces.extend(batch)
            leases.append(self._deliveries.pop(0).lease)
        return b"".join(pieces), leases


class _Turn:
    """One `seq`: what it settled, the call that waits for its batches, and in the end its response."""

    __slots__ = ("caller", "response", "results", "seq")

    def __init__(self, seq: int, results: Sequence[SettleResult]) -> None:
        self.seq = seq
        self.results = results
        #: identifies the latest call of this number
        self.caller: object = None
        self.response: bytes | None = None


class OpenStream:
    """One call of Open: the sign of life of a session."""

    def __init__(self, writer: StreamWriter, session: "FetchSession", max_message_bytes: int) -> None:
        self._writer = writer
        self._session = session
        self._max_message_bytes = max_message_bytes
        #: another call has the session
        self.superseded = False
        #: the connection is lost
        self.disconnected = False

    def supersede(self) -> None:
        self.superseded = True
        self._session.look()

    async def run(self, welcome: pb.Welcome) -> None:
        """Never returns. Raises what `FetchSession.events` raises, and is cancelled when the client is gone."""
        try:
            await self._writer.write(pb.OpenResponse(welcome=welcome).SerializeToString())
            while True:
                for notice in await self._session.events(self):
                    for piece in responses.split_notice(notice, self._max_message_bytes):
                        await self._writer.write(responses.notice(responses.OPEN_NOTICES, piece))
        except (asyncio.CancelledError, grpc.aio.BaseError):
            self.disconnected = True
            raise


class FetchSession(BatchWaiter):
    """A session whose batches are fetched, one call at a time. Between calls it has no credit."""

    def __init__(self, subscription: Subscription, registry: SubscriptionRegistry, terms: Terms) -> None:
        super().__init__()
        self._subscription = subscription
        self._registry = registry
        self._terms = terms
        self._turn = _Turn(0, ())
        #: held while a call settles: another of its number must find its results
        self._turning = asyncio.Lock()
        self._events = PendingNotices()
        self._eventful = asyncio.Event()
        self._stopping = False
        self.session = sessions.connect(subscription, self, terms)

    @property
    def id(self) -> bytes:
        return self.session.id

    @property
    def subscription(self) -> str:
        return self._subscription.settings.name

    @property
    def remembered(self) -> bytes:
        """The response of the latest turn, for a call that repeats it."""
        return self._turn.response or b""

    def idle(self) -> None:
        # Its client has the response, so all that a repeated call still wants are the results. If the session is over,
        # a call may still be on its way out, and the response goes with the session anyway.
        if self._turn.response is not None and not self.session.ended:
            limit = self.session.max_message_bytes
            self._turn.response = b"".join(responses.settle_results(responses.FETCH_RESULTS, self._turn.results, limit))

    def notify(self, notice: Notice) -> None:
        super().notify(notice)
        self._events.add(notice)
        self._eventful.set()

    async def events(self, stream: "OpenStream") -> list[Notice]:
        """The next notices for the session's own stream, which its process need not read: they come with Fetch too.

        Raises `Stopping` after the last one, and `Superseded` if another stream has the session.
        """
        while not stream.superseded:
            if self._events:
                return self._events.take()
            if self._stopping:
                raise Stopping(STOPPING)
            self._eventful.clear()
            await self._eventful.wait()
        raise Superseded(SUPERSEDED)

    def look(self) -> None:
        """Wake those that wait for `events`, so that they look whether another stream has the session."""
        self._eventful.set()

    def wait(self, resumable: ResumableSessions) -> bool:
        """The connection is lost. Returns whether the session goes on."""
        # No response carries them, and no call gets them before the client is back.
        sessions.release(self._subscription, self.take_back())
        return resumable.keep(self.session, self)

    def reconnect(self, terms: Terms) -> None:
        """Its client is back, with the same numbers of calls."""
        self._terms = terms
        sessions.reconnect(self._subscription, self.session, self, terms)

    def stop(self) -> None:
        """The sidecar stops: end the session's stream."""
        self._stopping = True
        self._eventful.set()

    def end(self, how: SessionEnd) -> None:
        sessions.release(self._subscription, self.take_back())
        sessions.end(self._subscription, self.session, how)

    async def fetch(self, request: pb.FetchRequest, check: Callable[[], None]) -> bytes:
        """Raises `OutOfTurn`, `InvalidRequest`, `Superseded` in a call that another of its number has replaced, and
        what `check` raises, which is asked before batches are put into a response.

        If it is cancelled, what it settled stays settled, and its batches wait for the call that repeats it.
        """
        name = self.subscription
        if request.subscription not in ("", name):
            raise InvalidRequest(f'the session belongs to subscription "{name}", not to "{request.subscription}"')
        limit = read_message_bytes(request.max_message_bytes, self._terms.max_message_bytes)
        lease = request.lease_ms / 1_000 if request.lease_ms else self._terms.lease
        batch_records = request.max_batch_records or self._terms.batch_records
        check_results(request, limit)
        async with self._turning:
            turn = await self._take_turn(request)
        if turn.response is not None:
            return turn.response
        want = FetchDemand.of(request)
        me = turn.caller = object()
        # This call replaces one that still waits.
        self.wake()
        if want.credit.batches:
            await self._collect(turn, me, want, lease, limit, batch_records, check)
        elif self.session.credit.batches:
            # The call that was replaced leaves its credit behind.
            self.session.grant(NO_CREDIT)
        turn.response, leases = self.respond(turn.results, want.credit.batches, limit)
        sessions.release(self._subscription, self.take_back())
        self._subscription.written(leases)
        return turn.response

    async def _take_turn(self, request: pb.FetchRequest) -> _Turn:
        last = self._turn
        if request.seq == last.seq and last.seq:
            return last
        if request.seq != last.seq + 1:
            allowed = f"{last.seq} or {last.seq + 1}" if last.seq else "1"
            raise OutOfTurn(f"seq {request.seq} is out of turn: it must be {allowed}")
        settlements = request.settlements
        if self.draining:
            if not settlements:
                raise Stopping(STOPPING)
            super().notify(_draining(self._subscription))
        turn = _Turn(request.seq, await settling.settle(self._registry, settlements))
        # The client has given up its last call, so nobody will see the batches of that one.
        last.caller = None
        sessions.release(self._subscription, self.take_back())
        self._turn = turn
        return turn

    async def _collect(
        self,
        turn: _Turn,
        me: object,
        want: FetchDemand,
        lease: float | None,
        limit: int,
        batch_records: int,
        check: Callable[[], None],
    ) -> None:
        """Returns when there are batches, or when waiting for them is over."""
        session = self.session
        session.max_message_bytes, session.lease = limit, lease
        session.batch_records = batch_records
        # Credit is a ceiling on all that is unsettled; what a call wants comes on top of that.
        max_bytes = session.unsettled_bytes + want.credit.bytes if want.credit.bytes else 0
        session.grant(Credit(session.unsettled + want.credit.batches, max_bytes))
        # Mostly there is something, and then the call need not wait.
        self._subscription.deliver_at_once()
        try:
            while turn.caller is me and not self.ready and await self.change(want.until):
                pass
            check()
        except (asyncio.CancelledError, ResourceExhausted):
            # The batches wait for the call that repeats this one, but no longer than their leases last.
            self._subscription.written(self.undelivered())
            raise
        finally:
            if turn.caller is me:
                session.grant(NO_CREDIT)
        if turn.caller is not me:
            raise Superseded(f"a later call replaced this one (seq {turn.seq})")


def check_results(request: pb.FetchRequest, limit: int) -> None:
    """Raises `TooManyEntries` if the results of the settlements would be more than the client accepts."""
    if len(request.settlements) * responses.SHORTEST_RESULT > limit:
        most = limit // responses.SHORTEST_RESULT
        raise TooManyEntries(
            f"settlements: the results of {len(request.settlements):,} need more than max_message_bytes, which is "
            f"{limit:,}; send at most {most:,} at a time",
            limit="settlements",
            max=most,
        )


def _draining(subscription: Subscription) -> Notice:
    return Notice(NoticeKind.DRAINING, detail=STOPPING, until=subscription.drains_until)


async def fetch_alone(
    request: pb.FetchRequest, subscription: Subscription, registry: SubscriptionRegistry, check: Callable[[], None]
) -> bytes:
    """A Fetch without a session.

    `check` is asked before batches are put into the response. If it raises, or if the call is cancelled, they go back
    at once.
    """
    if request.seq:
        raise InvalidRequest(f"seq is {request.seq}, but without a session it must be 0")
    terms = read_terms(request)
    want = FetchDemand.of(request)
    check_results(request, terms.max_message_bytes)
    results = await settling.settle(registry, request.settlements)
    waiter = BatchWaiter()
    if not want.credit.batches:
        return waiter.respond(results, 0, terms.max_message_bytes)[0]
    try:
        session = sessions.connect(
            subscription, waiter, replace(terms, lease=terms.lease or subscription.settings.lease.default), want.credit
        )
    except Stopping:
        if not results:
            raise
        waiter.notify(_draining(subscription))
        return waiter.respond(results, 0, terms.max_message_bytes)[0]
    how = SessionEnd.ORDERLY
    try:
        subscription.deliver_at_once()
        while not waiter.ready and await waiter.change(want.until):
            pass
        check()
        session.stop_deliveries()
        response, leases = waiter.respond(results, want.credit.batches, terms.max_message_bytes)
        sessions.release(subscription, waiter.take_back())
        subscription.written(leases)
        how = SessionEnd.DETACHED
        return response
    finally:
        session.end(how)
