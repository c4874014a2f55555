"""Workers that are called by the subscription itself."""

from collections.abc import Callable, Sequence

from sidecar.model.errors import Stopping
from sidecar.model.records import ClientInfo, Credit, Delivery, Notice, NoticeKind, SessionEnd, Settlement
from sidecar.subscription.session import Consumer, Session
from tests.simulation.broker.storage import StoredRecord
from tests.simulation.checked_subscription import CheckedSubscription
from tests.simulation.workers.handler import Handler
from tests.simulation.world import World


class Worker(Consumer):
    """One app process. Connects again whenever its session ends."""

    def __init__(self, world: World, handler: Handler, name: str, current: Callable[[], CheckedSubscription | None]):
        rng = world.rng
        self.world = world
        self.handler = handler
        self.name = name
        self._current = current
        self.session: Session | None = None
        self.credit = Credit(rng.choice((1, 1, 2, 4)), rng.choice((0, 0, 0, 600, 3000)))
        self.max_message_bytes = rng.choice((1 << 22, 1 << 22, 4096, 5120))
        self.lease = rng.choice((None, None, 1.0, 5.0, 20.0))
        self.busy: dict[bytes, list[StoredRecord]] = {}
        #: leases of all lives, with the number of their records
        self.old: list[tuple[bytes, int]] = []
        self._life = 0

    # Connecting

    def connect(self) -> None:
        subscription = self._current()
        if subscription is None or self.session is not None:
            self.later(0.3, self.connect)
            return
        try:
            session = subscription.connect(
                self,
                client=ClientInfo(language="sim", name=self.name),
                credit=Credit(0),
                max_message_bytes=self.max_message_bytes,
                lease=self.lease,
            )
        except Stopping:
            self.later(0.3, self.connect)
            return
        self.session = session
        self._life += 1
        session.grant(self.credit)

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        self.world.loop.call_later(seconds, action)

    def leave(self, how: SessionEnd) -> None:
        """End the session and come back in a while."""
        session, self.session = self.session, None
        if session is not None:
            self.busy.clear()
            session.end(how)
            self.later(self.world.rng.uniform(0.0, 1.0), self.connect)

    def leave_soon(self) -> None:
        """Start again with a new session and ordinary settings."""
        self.credit = Credit(2)
        self.max_message_bytes = 1 << 22
        self.lease = None
        if self.session is None:
            return
        self.leave(SessionEnd.ORDERLY)

    def kept_batches(self) -> int:
        """Batches that the sidecar keeps for it although it holds none."""
        return 0

    def sidecar_died(self) -> None:
        """The worker goes on: it will try to settle the leases that it holds."""
        self.session = None
        self.later(self.world.rng.uniform(0.0, 0.5), self.connect)

    # Consumer

    def deliver(self, delivery: Delivery) -> None:
        by_frame = self.handler.by_frame
        copies = [by_frame[delivery.topic, frame] for frame in delivery.frames]
        self.busy[delivery.lease] = copies
        self.old.append((delivery.lease, len(copies)))
        life = self._life
        self.world.loop.call_soon(self._start, delivery.lease, copies, life)

    def notify(self, notice: Notice) -> None:
        if notice.kind is NoticeKind.REVOKED and self.handler.rng.random() < 0.5:
            for lease in notice.leases:
                self.busy.pop(lease, None)

    def _start(self, lease: bytes, copies: Sequence[StoredRecord], life: int) -> None:
        subscription = self._current()
        if subscription is None or life != self._life or self.session is None:
            return
        subscription.written([lease])
        self.later(self.handler.work(), lambda: self._finish(lease, copies, life))

    # Working

    def _finish(self, lease: bytes, copies: Sequence[StoredRecord], life: int) -> None:
        if lease not in self.busy:
            return
        self.handler.finish(self, lease, copies, alive=life == self._life and self.session is not None)

    def settle(self, settlement: Settlement) -> None:
        subscription = self._current()
        if subscription is not None:
            subscription.settle([settlement])
