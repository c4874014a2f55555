"""The subscription under test, which reports every call in and out of it to the checker."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sidecar.core.state.leases import Lease
from sidecar.model.records import (
    ClientInfo,
    Credit,
    Delivery,
    Extended,
    Notice,
    Outcome,
    SessionEnd,
    Settlement,
    SettleResult,
    SettleStatus,
)
from sidecar.server.subscriptions import SubscriptionRegistry
from sidecar.subscription.session import Consumer, Session
from sidecar.subscription.subscription import Subscription
from tests.simulation.broker.simulated_broker import SimulatedBroker
from tests.simulation.checker.checker import Checker


class CheckedConsumer(Consumer):
    """Between the subscription and a worker."""

    def __init__(self, subscription: "CheckedSubscription", consumer: Consumer) -> None:
        self._subscription = subscription
        self._consumer = consumer
        self.session: Session | None = None

    def deliver(self, delivery: Delivery) -> None:
        subscription = self._subscription
        subscription.checker.delivered(self.session, delivery, down=subscription.outage.down)
        subscription.checker.progress.session_changed(self.session)
        self._consumer.deliver(delivery)

    def notify(self, notice: Notice) -> None:
        self._subscription.checker.notified(self.session, notice)
        self._consumer.notify(notice)

    def idle(self) -> None:
        self._consumer.idle()


class CheckedSubscription(Subscription):
    """The shipped code; each call is also reported to the checker."""

    broker: SimulatedBroker

    #: finds this subscription by its leases, as the gRPC service does
    directory: SubscriptionRegistry
    #: its process is gone: whatever its objects still do has no effect
    crashed = False

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        handler: Any = self._settlement
        handler._settle = self._settled_one(handler._settle)
        handler._finish_acked = self._acked_together(handler._finish_acked)

    @property
    def checker(self) -> Checker:
        return self.broker.checker

    def connect(
        self,
        consumer: Consumer,
        *,
        client: ClientInfo,
        credit: Credit,
        max_message_bytes: int,
        lease: float | None,
        batch_records: int = 0,
    ) -> Session:
        checked = CheckedConsumer(self, consumer)
        session = super().connect(
            checked,
            client=client,
            credit=Credit(0),
            max_message_bytes=max_message_bytes,
            lease=lease,
            batch_records=batch_records,
        )
        checked.session = session
        world = self.broker.world
        world.names[session] = f"{client.name}.{len(world.names)}"
        self.checker.connected(session)
        session.grant(credit)
        return session

    def session_changed(self, session: Session) -> None:
        if self.crashed:
            return
        if session._stopped:
            self.checker.stopped.add(session)
        self.checker.progress.session_changed(session)
        super().session_changed(session)

    def session_ended(self, session: Session, how: SessionEnd) -> None:
        if self.crashed:
            return
        # Leases that expire at this moment come first, and may be what shows an outage.
        self._expire()
        self.checker.session_ended(session, how, down=self.outage.down)
        super().session_ended(session, how)

    def written(self, leases: Iterable[bytes]) -> None:
        if self.crashed:
            return
        leases = list(leases)
        self.checker.written(leases)
        super().written(leases)

    def extend(self, lease: bytes, lease_for: float) -> Extended:
        answer = super().extend(lease, lease_for)
        self.checker.extended(lease, lease_for, answer)
        return answer

    def settle(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        if self.crashed:
            return []
        return super().settle(settlements)

    def _settled_one(self, settle: Callable[[Settlement, float], SettleResult]) -> Callable[..., SettleResult]:
        """Of those in a call, to see what follows from each."""

        def settled(settlement: Settlement, now: float) -> SettleResult:
            down = self.outage.down
            result = settle(settlement, now)
            self._follow(settlement, result, down=down)
            return result

        return settled

    def _acked_together(self, finish: Callable[[Sequence[Lease[Session]], float], None]) -> Callable[..., None]:
        """The same of whole batches that were acked one after another: the first of them ends an outage."""

        def finished(leases: Sequence[Lease[Session]], now: float) -> None:
            down = self.outage.down
            finish(leases, now)
            for lease in leases:
                result = SettleResult(lease.id, SettleStatus.SETTLED)
                self._follow(Settlement(lease.id, Outcome.ACK), result, down=down)
                down = self.outage.down

        return finished

    def _follow(self, settlement: Settlement, result: SettleResult, *, down: bool) -> None:
        """`down`: whether the handler was considered down before."""
        self.checker.outage_changed(down=self.outage.down)
        if down:
            self.checker.resumed_at = self.clock.now()
        self.checker.settled(settlement, result, down=(down, self.outage.down))

    def outage_changed(self) -> None:
        self.checker.outage_changed(down=self.outage.down)
        super().outage_changed()

    def pause(self, reason: str) -> None:
        super().pause(reason)
        self.checker.paused = True

    def resume(self) -> None:
        self.checker.paused = False
        self.checker.resumed_at = self.clock.now()
        super().resume()

    def _loop_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broker.world.loop.errors.append(error)
        super()._loop_ended(task)

    async def close(self) -> None:
        if self.checker.draining:
            # Nothing is committed from now on, so no settlement may count.
            self.checker.released(self._source, [*self.checker.epochs])
        await super().close()

    async def drain(self, deadline: float) -> None:
        self.checker.draining = True
        self.checker.drain_began = self.clock.now()
        await super().drain(deadline)
