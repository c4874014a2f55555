"""What a broker provides to be tested with a whole subscription, and the brokers that need no server."""

import shutil
from pathlib import Path
from typing import Protocol

from sidecar.brokers.base import Broker, Source
from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.settings import Bytes
from tests.brokers import harness as brokers
from tests.memory_broker import MemoryBroker
from tests.promises.rebalancing_broker import RebalancingBroker, RebalancingSource


class Harness(brokers.Harness, Protocol):
    """One kind of broker."""

    async def crash(self) -> Broker:
        """The broker as a sidecar finds it that starts after a kill -9: nothing was closed."""

    async def sibling(self) -> Broker:
        """The same broker for another sidecar. Called only for brokers with the trait `rebalances`."""

    async def lose(self, source: Source) -> None:
        """Give all lanes of a source to others as if it were dead; the source is told afterwards.

        Called only for brokers with the trait `rebalances`.
        """


class LocalHarness:
    """The embedded broker with real files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lives: list[LocalBroker] = []

    async def start(self) -> Broker:
        return await self._open()

    async def restart(self) -> Broker:
        await self._lives.pop().close()
        return await self._open()

    async def crash(self) -> Broker:
        """Continues with a copy of the files as they are on disk now; the old broker is not closed before that."""
        after = self._folder.with_name(self._folder.name + "-again")
        # In the writer thread, so that the copy is consistent.
        await self._lives[-1].write(lambda store: _copy(self._folder, after))
        self._folder = after
        return await self._open()

    async def sibling(self) -> Broker:
        raise NotImplementedError("one sidecar at a time")

    async def lose(self, source: Source) -> None:
        raise NotImplementedError("one sidecar at a time")

    async def stop(self) -> None:
        for broker in self._lives:
            await broker.close()

    async def _open(self) -> Broker:
        broker = LocalBroker(LocalOptions(directory=str(self._folder), reserve_bytes=Bytes(1 << 20)))
        await broker.open()
        self._lives.append(broker)
        return broker


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


def _copy(before: Path, after: Path) -> None:
    # Without the shared-memory file: it dies with the process and is rebuilt from the journal.
    shutil.copytree(before, after, ignore=shutil.ignore_patterns("*-shm", "*.lock", "*.reserve"))
