"""The brokers that the promises are played on."""

import shutil
from pathlib import Path

from sidecar.brokers.base import Broker, Source
from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.settings import Bytes
from tests.memory_broker import MemoryBroker
from tests.promises.sharing import SharedBroker, SharedSource


class LocalHarness:
    """Real files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lives: list[LocalBroker] = []

    async def start(self) -> Broker:
        return await self._open()

    async def restart(self) -> Broker:
        await self._lives.pop().close()
        return await self._open()

    async def crash(self) -> Broker:
        """Goes on with a copy of the files as they are on the disk now; the old broker is never closed before that."""
        after = self._folder.with_name(self._folder.name + "-again")
        # Within the thread that writes, so that the copy is of one moment.
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
    """Its memory is the process, so what ends with a sidecar is its source."""

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
        assert isinstance(source, SharedSource)
        source.lose()

    async def stop(self) -> None:
        await self._broker.close()


def shared_memory() -> MemoryHarness:
    """The broker in memory, with lanes that move between sidecars."""
    return MemoryHarness(SharedBroker())


def _copy(before: Path, after: Path) -> None:
    # Not the shared memory beside the journal: it dies with the process, and is made from the journal.
    shutil.copytree(before, after, ignore=shutil.ignore_patterns("*-shm", "*.lock", "*.reserve"))
