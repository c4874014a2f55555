"""The broker in memory for the shared suites."""

from sidecar.brokers.base import Broker, Source
from tests.memory_broker import MemoryBroker
from tests.promises.rebalancing_broker import RebalancingBroker, RebalancingSource


class MemoryHarness:
    """The broker in memory. It outlives a sidecar; only the sources end."""

    def __init__(self, broker: MemoryBroker | None = None) -> None:
        self._broker = broker or MemoryBroker()

    async def start(self) -> Broker:
        return self._broker

    async def restart(self) -> Broker:
        return self._broker

    async def crash(self) -> Broker:
        return self._broker

    async def sibling(self) -> Broker:
        return self._broker

    async def lose(self, source: Source) -> None:
        assert isinstance(source, RebalancingSource)
        source.lose()

    async def stop(self) -> None:
        await self._broker.close()


def rebalancing_memory() -> MemoryHarness:
    """The broker in memory, with lanes that move between sidecars."""
    return MemoryHarness(RebalancingBroker())
