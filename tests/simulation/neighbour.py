"""Another subscription of the same sidecar: its leases are settled in the same calls, and nothing disturbs it."""

import asyncio
import random
from typing import TYPE_CHECKING

from sidecar.model.records import ClientInfo, Credit, Delivery, Message, Notice, Outcome, Settlement, SettleStatus
from sidecar.settings import BatchSettings, Seconds, SubscriptionSettings
from sidecar.subscription.session import Consumer
from sidecar.subscription.subscription import Subscription
from tests.memory_broker import MemoryBroker
from tests.simulation.checker.promises import Promise

if TYPE_CHECKING:
    from tests.simulation.world import World

#: seconds after which a batch is settled that nobody took along
_PATIENCE = 1.0
_TOPIC = "others"
_SETTINGS = SubscriptionSettings(
    name="neighbour", topics=(_TOPIC,), batch=BatchSettings(records=3), commit_every=Seconds(0.05)
)


class Neighbour(Consumer):
    """Its worker hands what is to be settled to those of the other subscription, who send it with their own."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._broker = MemoryBroker()
        self.subscription: Subscription | None = None
        #: leases that are to be settled
        self._waiting: dict[bytes, None] = {}
        #: sent, of this life
        self._sent: set[bytes] = set()

    async def start(self, prefix: bytes) -> Subscription:
        # Random numbers of its own: it takes nothing from those of the history.
        rng = random.Random(self._world.seed)
        self.subscription = Subscription(_SETTINGS, self._broker, prefix=prefix, clock=self._world.clock, rng=rng)
        await self.subscription.start()
        client = ClientInfo(language="sim", name="neighbour")
        session = self.subscription.connect(
            self, client=client, credit=Credit(0), max_message_bytes=1 << 22, lease=None
        )
        session.grant(Credit(2))
        return self.subscription

    async def stop(self) -> None:
        # What comes from now on belongs to another life.
        self._waiting.clear()
        self._sent.clear()
        if self.subscription is not None:
            await self.subscription.close()

    async def publish(self, count: int) -> None:
        await self._broker.publish(_TOPIC, [Message(None, b"value")] * count)

    def deliver(self, delivery: Delivery) -> None:
        self._waiting[delivery.lease] = None
        subscription = self.subscription
        assert subscription is not None
        self._world.loop.call_soon(subscription.written, [delivery.lease])
        self._world.loop.call_later(_PATIENCE, self._settle_alone, delivery.lease)

    def notify(self, notice: Notice) -> None:
        pass

    def to_settle(self) -> list[Settlement]:
        """For a worker that sends its own."""
        self._sent.update(self._waiting)
        settlements = [Settlement(lease, Outcome.ACK) for lease in self._waiting]
        self._waiting.clear()
        return settlements

    def answered(self, lease: bytes, status: int) -> None:
        """The result of a settlement that may be one of these."""
        if lease in self._sent:
            self._world.exercised("two subscriptions in a request")
            self._check(lease, status)

    def _settle_alone(self, lease: bytes) -> None:
        """Also if it was sent: the call may not have arrived, or its answer was lost."""
        if lease in self._waiting or lease in self._sent:
            self._waiting.pop(lease, None)
            assert self.subscription is not None
            (result,) = self.subscription.settle([Settlement(lease, Outcome.ACK)])
            self._check(lease, result.status)

    def _check(self, lease: bytes, status: int) -> None:
        if status != SettleStatus.SETTLED:
            self._world.broken(Promise.TRUTHFUL, f"the neighbour's lease {lease.hex()} was answered {status}")

    async def check_done(self) -> None:
        """Nothing goes wrong any more: all of it must be committed soon."""
        await asyncio.sleep(3 * _PATIENCE)
        for lane in self._broker.ensure(_TOPIC):
            commit = self._broker.cursors[_SETTINGS.group_name, lane.lane]
            if commit.position != len(lane.frames):
                self._world.broken(Promise.SLOW_RECORD, f"of the neighbour's {len(lane.frames)} records: {commit}")
