"""Another subscription of the same sidecar: its leases are settled in the same calls, and nothing disturbs it."""

import asyncio
import random
from typing import TYPE_CHECKING

from sidecar.model.records import ClientInfo, Credit, Delivery, Message, Notice, Outcome, Settlement, SettleStatus
from sidecar.model.wire import decode_frame
from sidecar.settings import BatchSettings, Seconds, SubscriptionSettings
from sidecar.subscription.session import Consumer
from sidecar.subscription.subscription import Subscription
from tests.memory_broker import MemoryBroker
from tests.simulation.checker.promises import Promise

if TYPE_CHECKING:
    from tests.simulation.world import World

#: seconds after which a batch is settled that nobody took along
_PATIENCE = 1.0
_SETTINGS = SubscriptionSettings(
    name="neighbour", topics=("others",), batch=BatchSettings(records=3), commit_every=Seconds(0.05)
)


class Neighbour(Consumer):
    """Its worker hands what is to be settled to those of the other subscription, who send it with their own."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._broker = MemoryBroker()
        self.subscription: Subscription | None = None
        #: values that are not acked, and leases that are to be settled with their values
        self._left: set[bytes] = set()
        self._waiting: dict[bytes, list[bytes]] = {}
        #: sent, of this life
        self._sent: dict[bytes, list[bytes]] = {}
        self._published = 0

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
        values = [b"%d" % (self._published + number) for number in range(count)]
        self._published += count
        self._left.update(values)
        await self._broker.publish("others", [Message(None, value) for value in values])

    def deliver(self, delivery: Delivery) -> None:
        self._waiting[delivery.lease] = [decode_frame(frame).value or b"" for frame in delivery.frames]
        subscription = self.subscription
        assert subscription is not None
        self._world.loop.call_soon(subscription.written, [delivery.lease])
        self._world.loop.call_later(_PATIENCE, self._settle_alone, delivery.lease)

    def notify(self, notice: Notice) -> None:
        pass

    def to_settle(self) -> list[Settlement]:
        """For a worker that sends its own."""
        self._sent.update(self._waiting)
        leases, self._waiting = [*self._waiting], {}
        return [Settlement(lease, Outcome.ACK) for lease in leases]

    def answered(self, lease: bytes, status: int) -> None:
        """The result of a settlement that may be one of these."""
        values = self._sent.get(lease)
        if values is None:
            return
        if status != SettleStatus.SETTLED:
            self._world.broken(Promise.TRUTHFUL, f"the neighbour's lease {lease.hex()} was answered {status}")
        self._world.exercised("two subscriptions in a request")
        self._left.difference_update(values)

    def _settle_alone(self, lease: bytes) -> None:
        subscription = self.subscription
        if lease not in self._waiting and lease not in self._sent:
            return
        assert subscription is not None
        # It may have been settled by a call whose answer was lost.
        values = self._waiting.pop(lease, None) or self._sent.get(lease) or []
        (result,) = subscription.settle([Settlement(lease, Outcome.ACK)])
        if result.status is not SettleStatus.SETTLED:
            self._world.broken(Promise.TRUTHFUL, f"the neighbour's lease {lease.hex()} was answered {result}")
        self._left.difference_update(values)

    async def check_done(self) -> None:
        """Nothing goes wrong any more: all of it must be done soon."""
        await asyncio.sleep(3 * _PATIENCE)
        if self._left:
            self._world.broken(Promise.SLOW_RECORD, f"{len(self._left)} records of the neighbour are left")
