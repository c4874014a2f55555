"""Workers that use `Fetch`: the shipped code behind the call, with requests and answers that get lost."""

import asyncio
from collections.abc import Callable

from offramp.v1 import consumer_pb2 as pb
from sidecar.model.errors import OutOfTurn, Stopping, Superseded
from sidecar.model.records import ClientInfo, SessionEnd, Settlement
from sidecar.server.grpc.consumer.fetch_session import FetchSession, fetch_alone
from sidecar.server.grpc.consumer.sessions import Terms
from sidecar.server.subscriptions import SubscriptionRegistry
from tests.simulation.checked_subscription import CheckedSubscription
from tests.simulation.checker.checker import Checker
from tests.simulation.checker.promises import Promise
from tests.simulation.neighbour import Neighbour
from tests.simulation.workers.handler import Handler
from tests.simulation.workers.messages import as_proto
from tests.simulation.world import World

#: what happens to calls, and the largest share of calls to which it happens
CALL_FAULTS = {
    "a reply is lost": 0.2,
    "a call is cut": 0.2,
    "a call is repeated while it waits": 0.2,
    "a call is out of turn": 0.1,
    "an answer is given up": 0.1,
}


class Fetcher:
    """One process that blocks while it works. Its calls are numbered in a session, or stand alone."""

    def __init__(
        self,
        world: World,
        handler: Handler,
        checker: Checker,
        name: str,
        current: Callable[[], CheckedSubscription | None],
        neighbour: Neighbour,
    ) -> None:
        rng = world.rng
        self.world = world
        self.name = name
        self._handler = handler
        self._truth = checker
        self._current = current
        self._neighbour = neighbour
        self._alone = rng.random() < 0.3
        self._want = rng.choice((1, 1, 3))
        self._lease = rng.choice((0, 0, 2_000, 10_000))
        self._trouble = {what: most * rng.random() for what, most in CALL_FAULTS.items() if rng.random() < 0.4}
        self._task: asyncio.Task[None] | None = None
        self._session: FetchSession | None = None
        #: settlements of batches of any life that are not sent yet
        self._unsent: list[Settlement] = []
        self._seq = 0

    def connect(self) -> None:
        if self._task is None:
            self._task = self.world.loop.create_task(self._work())

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.world.loop.call_later(seconds, action)

    def kept_batches(self) -> int:
        """Batches in the answer that is kept for a call that repeats it, although it holds none."""
        if self._session is None or self._session.session.unsettled:
            return 0
        return len(pb.FetchResponse.FromString(self._session.remembered).batches)

    def sidecar_died(self) -> None:
        """The call ends with an error; what the worker holds it will settle in the next life."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._session = None
        self.later(self.world.rng.uniform(0.0, 0.5), self.connect)

    def leave_soon(self) -> None:
        """Start again with ordinary settings and no faults."""
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
            if answer is not None:
                for result in answer.results:
                    self._neighbour.answered(result.lease, result.status)
            if answer is None:
                await asyncio.sleep(0.3)
                continue
            for batch in answer.batches:
                await asyncio.sleep(handler.work())
                grant = self._truth.grants.get(batch.lease)
                if grant is None or handler.has("never settles"):
                    continue
                copies = [item.copy for item in grant.items]
                if self._session is not None and (handler.has("dies") or any(copy.kind == "killer" for copy in copies)):
                    self._end(SessionEnd.LOST)
                    await asyncio.sleep(rng.uniform(0.0, 0.5))
                    break
                self._unsent.append(handler.outcome(batch.lease, copies))
            if not answer.batches:
                await asyncio.sleep(rng.uniform(0.0, 0.3))

    async def _fetch(self, subscription: CheckedSubscription) -> pb.FetchResponse:
        self._unsent += self._neighbour.to_settle()
        request = pb.FetchRequest(
            subscription=subscription.settings.name,
            settlements=[as_proto(settlement) for settlement in self._unsent],
            want=pb.Credit(batches=self._want),
            wait_ms=self.world.rng.choice((0, 200, 5_000)),
            lease_ms=self._lease,
            client=pb.Client(name=self.name),
        )
        words, self._unsent = self._unsent, []
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
            # Unknown whether it arrived: settling twice is harmless.
            self._unsent = words + self._unsent
            self._seq -= 1
            raise

    async def _call_alone(
        self, request: pb.FetchRequest, subscription: CheckedSubscription, directory: SubscriptionRegistry
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
                self.world.broken(Promise.PROTOCOL, f"seq {request.seq} was answered otherwise the second time")
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
            call.add_done_callback(_retrieve_exception)

    async def _twice(self, request: pb.FetchRequest, session: FetchSession) -> bytes:
        """A call, and the same again while the first one still waits."""
        first = self.world.loop.create_task(session.fetch(request, _all_is_read))
        first.add_done_callback(_retrieve_exception)
        try:
            await asyncio.sleep(self.world.rng.uniform(0.0, 0.3))
            answer = await session.fetch(request, _all_is_read)
        finally:
            if not first.done():
                await asyncio.sleep(0)
                first.cancel()
        error = first.exception() if first.done() and not first.cancelled() else None
        if not first.done() or (error is not None and not isinstance(error, Superseded)):
            self.world.broken(Promise.PROTOCOL, f"the first call of seq {request.seq} did not give way: {error!r}")
        if error is None and first.result() != answer:
            self.world.broken(Promise.PROTOCOL, f"two calls of seq {request.seq} had two answers")
        return answer

    async def _out_of_turn(self, request: pb.FetchRequest, session: FetchSession) -> None:
        wrong = pb.FetchRequest()
        wrong.CopyFrom(request)
        wrong.seq = self.world.rng.choice([seq for seq in (self._seq - 2, self._seq + 1, self._seq + 5) if seq >= 0])
        try:
            await session.fetch(wrong, _all_is_read)
        except OutOfTurn:
            return
        self.world.broken(Promise.PROTOCOL, f"seq {wrong.seq} was answered, the turn was {self._seq}")


def _retrieve_exception(call: "asyncio.Task[bytes]") -> None:
    """Retrieve the exception of a call that nobody awaits."""
    if not call.cancelled():
        call.exception()


def _all_is_read() -> None:
    """No answer is unread, so another may be sent."""
