"""The subscription under test, with the checker looking at everything that passes in and out of it."""

import asyncio
from collections.abc import Iterable, Sequence

from sidecar.model.records import ClientInfo, Credit, Delivery, Extended, Notice, SessionEnd, Settlement, SettleResult
from sidecar.server.subscriptions import SubscriptionRegistry
from sidecar.subscription.session import Consumer, Session
from sidecar.subscription.subscription import Subscription
from tests.simulation.broker import SimBroker
from tests.simulation.truth import Truth


class WatchedConsumer:
    """Stands between the subscription and a worker."""

    def __init__(self, subscription: "WatchedSubscription", consumer: Consumer) -> None:
        self._subscription = subscription
        self._consumer = consumer
        self.session: Session | None = None

    def deliver(self, delivery: Delivery) -> None:
        subscription = self._subscription
        subscription.truth.delivered(self.session, delivery, down=subscription.outage.down)
        subscription.truth.flow.session_changed(self.session)
        self._consumer.deliver(delivery)

    def notify(self, notice: Notice) -> None:
        self._subscription.truth.notified(self.session, notice)
        self._consumer.notify(notice)


class WatchedSubscription(Subscription):
    """Shipped code all the way; each call is also told to the checker."""

    broker: SimBroker

    #: finds this subscription by its leases, as the service does
    directory: SubscriptionRegistry

    @property
    def truth(self) -> Truth:
        return self.broker.truth

    def connect(
        self, consumer: Consumer, *, client: ClientInfo, credit: Credit, max_message_bytes: int, lease: float | None
    ) -> Session:
        watched = WatchedConsumer(self, consumer)
        session = super().connect(
            watched, client=client, credit=Credit(0), max_message_bytes=max_message_bytes, lease=lease
        )
        watched.session = session
        world = self.broker.world
        world.names[session] = f"{client.name}.{len(world.names)}"
        self.truth.connected(session)
        session.grant(credit)
        return session

    def session_changed(self, session: Session) -> None:
        if session._stopped:
            self.truth.stopped.add(session)
        self.truth.flow.session_changed(session)
        super().session_changed(session)

    def session_ended(self, session: Session, how: SessionEnd) -> None:
        # Leases that expire in this very moment come first, and may be what an outage is seen by.
        self._expire()
        self.truth.session_ended(session, how, down=self.outage.down)
        super().session_ended(session, how)

    def written(self, leases: Iterable[bytes]) -> None:
        leases = list(leases)
        self.truth.written(leases)
        super().written(leases)

    def extend(self, lease: bytes, lease_for: float) -> Extended:
        answer = super().extend(lease, lease_for)
        self.truth.extended(lease, lease_for, answer)
        return answer

    def settle(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        self.tracker.leases.check(settlements)
        results = []
        # One by one, which is the same, so that what follows from each is seen.
        for settlement in settlements:
            down = self.outage.down
            results += super().settle([settlement])
            if down:
                self.truth.resumed_at = self.clock.now()
            self.truth.settled(settlement, results[-1], down=(down, self.outage.down))
        return results

    def pause(self, reason: str) -> None:
        super().pause(reason)
        self.truth.paused = True

    def resume(self) -> None:
        self.truth.paused = False
        self.truth.resumed_at = self.clock.now()
        super().resume()

    def _loop_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broker.world.loop.errors.append(error)
        super()._loop_ended(task)

    async def close(self) -> None:
        if self.truth.draining:
            # Nothing is committed from now on, so nothing that is said may count.
            self.truth.released(self._source, [*self.truth.epochs])
        await super().close()

    async def drain(self, deadline: float) -> None:
        self.truth.draining = True
        self.truth.drain_began = self.clock.now()
        await super().drain(deadline)
