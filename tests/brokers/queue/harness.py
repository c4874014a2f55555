"""The queue broker in memory for the shared suites."""

from sidecar.brokers.base import Broker, Source, Traits
from sidecar.brokers.queue.broker import QueueBroker
from sidecar.model.clock import Clock
from tests.brokers.queue.memory_driver import Handle, MemoryDriver, Nature, Server

#: each group gets everything, and messages have numbers: like a stream with groups
STREAM = Nature(numbered=True, independent=True, channels=False)
#: all who consume share: like a plain queue
PLAIN = Nature()


def traits(nature: Nature) -> Traits:
    return Traits(
        keeps_acks_beyond=True,
        keeps_reach=False,
        rebalances=False,
        lanes_are_exclusive=False,
        seeks=False,
        reads_ranges=False,
        creates_topics=True,
        acks_are_final=True,
        positions_count_records=False,
        positions_are_stable=False,
        groups_are_independent=nature.independent,
        browses=True,
    )


def broker_on(server: Server, clock: Clock | None = None) -> QueueBroker[Handle]:
    return QueueBroker(traits(server.nature), MemoryDriver(server), clock)


class QueueHarness:
    """The server outlives a sidecar; only the sources end."""

    def __init__(self, nature: Nature, clock: Clock | None = None) -> None:
        self.server = Server(nature)
        self._clock = clock

    async def start(self) -> Broker:
        return broker_on(self.server, self._clock)

    async def restart(self) -> Broker:
        return await self.start()

    async def crash(self) -> Broker:
        return await self.start()

    async def sibling(self) -> Broker:
        return await self.start()

    async def lose(self, source: Source) -> None:
        raise NotImplementedError("lanes do not move")

    async def stop(self) -> None:
        assert not self.server.misused, "handles of one receiver were acked by another"
