"""Workers that fetch: the shipped code behind `Fetch`, with calls and answers that get lost on the way."""

import asyncio
from collections.abc import Callable

from offramp.v1 import consumer_pb2 as pb
from offramp.v1 import record_pb2
from sidecar.model.errors import OutOfTurn, Stopping, Superseded
from sidecar.model.records import ClientInfo, SessionEnd, Settlement
from sidecar.server.grpc.fetch_session import FetchSession, fetch_alone
from sidecar.server.grpc.sessions import Terms
from sidecar.server.subscriptions import SubscriptionRegistry
from tests.simulation.handler import Handler
from tests.simulation.truth import Truth
from tests.simulation.watched import WatchedSubscription
from tests.simulation.world import World

#: what happens to calls on the way, and the largest share of calls that it happens to
TROUBLE = {
    "a reply is lost": 0.2,
    "a call is cut": 0.2,
    "a call is repeated while it waits": 0.2,
    "a call is out of turn": 0.1,
    "an answer is given up": 0.1,
}


class Fetcher:
    """One process that blocks while it works. With a session it counts its calls; without one it just calls."""

    def __init__(
        self, world: World, handler: Handler, truth: Truth, name: str, current: Callable[[], WatchedSubscription | None]
    ) -> None:
        rng = world.rng
        self.world = world
        self.name = name
        self._handler = handler
        self._truth = truth
        self._current = current
        self._alone = rng.random() < 0.3
        self._want = rng.choice((1, 1, 3))
        self._lease = rng.choice((0, 0, 2_000, 10_000))
        self._trouble = {what: most * rng.random() for what, most in TROUBLE.items() if rng.random() < 0.4}
        self._task: asyncio.Task[None] | None = None
        self._session: FetchSession | None = None
        #: said of batches of any life, and not yet sent
        self._words: list[Settlement] = []
        self._seq = 0

    def connect(self) -> None:
        if self._task is None:
            self._task = self.world.loop.create_task(self._work())

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.world.loop.call_later(seconds, action)

    def sidecar_died(self) -> None:
        """The call ends with an error; what it holds it will settle in the next life."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._session = None
        self.later(self.world.rng.uniform(0.0, 0.5), self.connect)

    def leave_soon(self) -> None:
        """Start over as a worker that behaves."""
        self._trouble = {}
        self._lease = 0
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._end(SessionEnd.ORDERLY)
        self.later(0.1, self.connect)

    def _end(self, how: SessionEnd) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.end(how)

    def _has(self, trouble: str) -> bool:
        rate = self._trouble.get(trouble)
        if rate is None or self.world.rng.random() >= rate:
            return False
        self.world.exercised(trouble)
        return True

    async def _work(self) -> None:
        rng, handler = self.world.rng, self._handler
        while True:
            subscription = self._current()
            try:
                answer = None if subscription is None else await self._fetch(subscription)
            except Stopping:
                answer = None
            if answer is None:
                await asyncio.sleep(0.3)
                continue
            for batch in answer.batches:
                await asyncio.sleep(handler.work())
                hand = self._truth.hands.get(batch.lease)
                if hand is None or handler.has("never settles"):
                    continue
                copies = [item.copy for item in hand.items]
                if self._session is not None and (handler.has("dies") or any(copy.kind == "killer" for copy in copies)):
                    self._end(SessionEnd.LOST)
                    await asyncio.sleep(rng.uniform(0.0, 0.5))
                    break
                self._words.append(handler.outcome(batch.lease, copies))
            if not answer.batches:
                await asyncio.sleep(rng.uniform(0.0, 0.3))

    async def _fetch(self, subscription: WatchedSubscription) -> pb.FetchResponse:
        request = pb.FetchRequest(
            subscription=subscription.settings.name,
            settlements=[_to_proto(word) for word in self._words],
            want=pb.Credit(batches=self._want),
            wait_ms=self.world.rng.choice((0, 200, 5_000)),
            lease_ms=self._lease,
            client=pb.Client(name=self.name),
        )
        words, self._words = self._words, []
        directory = subscription.directory
        try:
            if self._alone:
                return await self._call_alone(request, subscription, directory)
            if self._session is None:
                terms = Terms(ClientInfo(language="sim", name=self.name), 1 << 22, None)
                self._session = FetchSession(subscription, directory, terms)
                self._seq = 0
            self._seq += 1
            request.seq = self._seq
            return await self._call(request, self._session)
        except (asyncio.CancelledError, Stopping):
            # Nobody knows whether it was heard: settling twice is harmless.
            self._words = words + self._words
            self._seq -= 1
            raise

    async def _call_alone(
        self, request: pb.FetchRequest, subscription: WatchedSubscription, directory: SubscriptionRegistry
    ) -> pb.FetchResponse:
        answer = await fetch_alone(request, subscription, directory, _all_is_read)
        if self._has("a reply is lost"):
            del request.settlements[:]
            answer = await fetch_alone(request, subscription, directory, _all_is_read)
        return pb.FetchResponse.FromString(answer)

    async def _call(self, request: pb.FetchRequest, session: FetchSession) -> pb.FetchResponse:
        if self._has("a call is out of turn"):
            await self._out_of_turn(request, session)
        if self._has("a call is cut"):
            await self._begin(request, session)
        if self._has("a call is repeated while it waits"):
            answer = await self._twice(request, session)
        else:
            answer = await session.fetch(request, _all_is_read)
        if self._has("a reply is lost"):
            again = await session.fetch(request, _all_is_read)
            if again != answer:
                self.world.broken("the protocol", f"seq {request.seq} was answered otherwise the second time")
        if self._has("an answer is given up"):
            return pb.FetchResponse()
        return pb.FetchResponse.FromString(answer)

    async def _begin(self, request: pb.FetchRequest, session: FetchSession) -> None:
        """A call that its client gives up after a while."""
        call = self.world.loop.create_task(session.fetch(request, _all_is_read))
        try:
            await asyncio.sleep(self.world.rng.uniform(0.0, 0.3))
        finally:
            call.cancel()
            call.add_done_callback(_hear)

    async def _twice(self, request: pb.FetchRequest, session: FetchSession) -> bytes:
        """A call, and the same again while the first one still waits."""
        first = self.world.loop.create_task(session.fetch(request, _all_is_read))
        first.add_done_callback(_hear)
        try:
            await asyncio.sleep(self.world.rng.uniform(0.0, 0.3))
            answer = await session.fetch(request, _all_is_read)
        finally:
            if not first.done():
                await asyncio.sleep(0)
                first.cancel()
        error = first.exception() if first.done() and not first.cancelled() else None
        if not first.done() or (error is not None and not isinstance(error, Superseded)):
            self.world.broken("the protocol", f"the first call of seq {request.seq} did not give way: {error!r}")
        if error is None and first.result() != answer:
            self.world.broken("the protocol", f"two calls of seq {request.seq} had two answers")
        return answer

    async def _out_of_turn(self, request: pb.FetchRequest, session: FetchSession) -> None:
        wrong = pb.FetchRequest()
        wrong.CopyFrom(request)
        wrong.seq = self.world.rng.choice([seq for seq in (self._seq - 2, self._seq + 1, self._seq + 5) if seq >= 0])
        try:
            await session.fetch(wrong, _all_is_read)
        except OutOfTurn:
            return
        self.world.broken("the protocol", f"seq {wrong.seq} was answered, the turn was {self._seq}")


def _hear(call: "asyncio.Task[bytes]") -> None:
    """Take note of how a call ended: nobody else may."""
    if not call.cancelled():
        call.exception()


def _to_proto(word: Settlement) -> record_pb2.Settlement:
    outcome = record_pb2.Outcome.Name(word.outcome or 0)
    out = record_pb2.Settlement(lease=word.lease, outcome=outcome, reason=word.reason, partial=word.outcome is None)
    if word.retry_after is not None:
        out.retry_after_ms = round(word.retry_after * 1_000)
    for part in word.parts:
        piece = out.parts.add(first=part.first, count=part.count, outcome=part.outcome.value, reason=part.reason)
        if part.retry_after is not None:
            piece.retry_after_ms = round(part.retry_after * 1_000)
    return out


def _all_is_read() -> None:
    """No answer lies unread, so there may be another."""
