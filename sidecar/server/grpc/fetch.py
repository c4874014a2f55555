"""Sessions for processes that block while they work (`Open`), and the calls that bring them batches (`Fetch`)."""

import asyncio
from collections.abc import Callable, Sequence

from offramp.v1 import consumer_pb2 as pb
from sidecar.model.errors import Exhausted, InvalidRequest, OutOfTurn, Stopping, Superseded
from sidecar.model.records import Credit, Notice, NoticeKind, SessionEnd, SettleResult
from sidecar.server.grpc import session_end
from sidecar.server.grpc.batch_waiter import BatchWaiter, FetchDemand
from sidecar.server.grpc.clients import Terms, read_message_bytes, read_terms
from sidecar.server.grpc.notices import Notices
from sidecar.server.grpc.registry import SubscriptionRegistry
from sidecar.server.grpc.settlements import read_settlements
from sidecar.subscription.subscription import Subscription

STOPPING = "the sidecar is stopping"
_DRAINING = Notice(NoticeKind.DRAINING, detail=STOPPING)
_NO_BATCHES = Credit(0)


class _Turn:
    """One `seq`: what it settled, the call that waits for its batches, and in the end its answer."""

    __slots__ = ("answer", "caller", "results", "seq")

    def __init__(self, seq: int, results: Sequence[SettleResult]) -> None:
        self.seq = seq
        self.results = results
        #: the latest call of this number
        self.caller: object = None
        self.answer: bytes | None = None


class FetchSession(BatchWaiter):
    """A session whose batches are fetched, one call at a time. Between calls it has no credit."""

    def __init__(self, subscription: Subscription, directory: SubscriptionRegistry, terms: Terms) -> None:
        super().__init__()
        self._subscription = subscription
        self._directory = directory
        self._terms = terms
        self._turn = _Turn(0, ())
        self._events = Notices()
        self._eventful = asyncio.Event()
        self._stopping = False
        self._session = subscription.connect(
            self,
            client=terms.client,
            credit=_NO_BATCHES,
            max_message_bytes=terms.max_message_bytes,
            lease=terms.lease,
        )

    @property
    def id(self) -> bytes:
        return self._session.id

    @property
    def subscription(self) -> str:
        return self._subscription.settings.name

    def notify(self, notice: Notice) -> None:
        super().notify(notice)
        self._events.add(notice)
        self._eventful.set()

    async def events(self) -> list[Notice]:
        """The next notices for the session's own stream, which its process need not read: they come with Fetch too.

        Raises `Stopping` after the last one.
        """
        while not self._events:
            if self._stopping:
                raise Stopping(STOPPING)
            self._eventful.clear()
            await self._eventful.wait()
        return self._events.take()

    def stop(self) -> None:
        """The sidecar stops: end the session's stream."""
        self._stopping = True
        self._eventful.set()

    def end(self, how: SessionEnd) -> None:
        session_end.end(self._subscription, self._session, how, unseen=self.take_back())

    async def fetch(self, request: pb.FetchRequest, check: Callable[[], None]) -> bytes:
        """Raises `OutOfTurn`, `InvalidRequest` and, in a call that another of its number replaced, `Superseded`; and
        what `check` raises when it is asked whether there may be an answer now.

        When it is cancelled, what it settled is settled and what it got stays here for the call that repeats it.
        """
        name = self.subscription
        if request.subscription not in ("", name):
            raise InvalidRequest(f'the session belongs to subscription "{name}", not to "{request.subscription}"')
        limit = read_message_bytes(request.max_message_bytes, self._terms.max_message_bytes)
        lease = request.lease_ms / 1_000 if request.lease_ms else self._terms.lease
        turn = self._take_turn(request)
        if turn.answer is not None:
            return turn.answer
        want = FetchDemand.of(request)
        me = turn.caller = object()
        # A call that waited until now has been replaced by this one.
        self.look_again()
        if want.credit.batches:
            await self._collect(turn, me, want, lease, limit, check)
        elif self._session.credit.batches:
            # Of the call that was replaced, which leaves it to this one.
            self._session.grant(_NO_BATCHES)
        turn.answer, leases = self.answer(turn.results, want.credit.batches, limit)
        session_end.release(self._subscription, self.take_back())
        self._subscription.written(leases)
        return turn.answer

    def _take_turn(self, request: pb.FetchRequest) -> _Turn:
        last = self._turn
        if request.seq == last.seq and last.seq:
            return last
        if request.seq != last.seq + 1:
            allowed = f"{last.seq} or {last.seq + 1}" if last.seq else "1"
            raise OutOfTurn(f"seq {request.seq} is out of turn: it must be {allowed}")
        settlements = read_settlements(request.settlements)
        if self.draining:
            if not settlements:
                raise Stopping(STOPPING)
            super().notify(_DRAINING)
        turn = _Turn(request.seq, self._directory.settle(settlements))
        # The client went on without the answer to its last call, so nobody will ever see what it would have had.
        last.caller = None
        session_end.release(self._subscription, self.take_back())
        self._turn = turn
        return turn

    async def _collect(
        self, turn: _Turn, me: object, want: FetchDemand, lease: float | None, limit: int, check: Callable[[], None]
    ) -> None:
        """Returns when there are batches, or when waiting for them is over."""
        session = self._session
        session.max_message_bytes, session.lease = limit, lease
        # Credit is a ceiling on all that is unsettled; what a call wants comes on top of that.
        most_bytes = session.unsettled_bytes + want.credit.bytes if want.credit.bytes else 0
        session.grant(Credit(session.unsettled + want.credit.batches, most_bytes))
        try:
            while turn.caller is me and not self.ready and await self.change(want.until):
                pass
            check()
        except (asyncio.CancelledError, Exhausted):
            # They wait here for the call that repeats this one, but not longer than a lease lasts.
            self._subscription.written(self.undelivered())
            raise
        finally:
            if turn.caller is me:
                session.grant(_NO_BATCHES)
        if turn.caller is not me:
            raise Superseded(f"a later call took the place of this one (seq {turn.seq})")


async def fetch_alone(
    request: pb.FetchRequest, subscription: Subscription, directory: SubscriptionRegistry, check: Callable[[], None]
) -> bytes:
    """A Fetch without a session. If it is cancelled, or `check` raises when it is asked whether there may be an answer
    now, what it got goes back at once."""
    if request.seq:
        raise InvalidRequest(f"seq is {request.seq}, but without a session it must be 0")
    terms = read_terms(request.client, request.max_message_bytes, request.lease_ms)
    want = FetchDemand.of(request)
    settlements = read_settlements(request.settlements)
    results = directory.settle(settlements)
    pull = BatchWaiter()
    if not want.credit.batches:
        return pull.answer(results, 0, terms.max_message_bytes)[0]
    try:
        session = subscription.connect(
            pull,
            client=terms.client,
            credit=want.credit,
            max_message_bytes=terms.max_message_bytes,
            lease=terms.lease or subscription.settings.lease.default,
        )
    except Stopping:
        if not settlements:
            raise
        pull.notify(_DRAINING)
        return pull.answer(results, 0, terms.max_message_bytes)[0]
    how = SessionEnd.ORDERLY
    try:
        while not pull.ready and await pull.change(want.until):
            pass
        check()
        session.stop_deliveries()
        answer, leases = pull.answer(results, want.credit.batches, terms.max_message_bytes)
        session_end.release(subscription, pull.take_back())
        subscription.written(leases)
        how = SessionEnd.DETACHED
        return answer
    finally:
        session.end(how)
