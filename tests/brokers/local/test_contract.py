"""The embedded broker keeps the adapter contract."""

from pathlib import Path

import pytest

from sidecar.brokers.base import Broker
from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.settings import Bytes
from tests.brokers.contract import AdapterContract
from tests.brokers.harness import Harness


class LocalHarness:
    def __init__(self, directory: Path) -> None:
        self._options = LocalOptions(directory=str(directory), reserve_bytes=Bytes(1 << 20))
        self._broker = LocalBroker(self._options)

    async def start(self) -> Broker:
        await self._broker.open()
        return self._broker

    async def restart(self) -> Broker:
        await self._broker.close()
        self._broker = LocalBroker(self._options)
        return await self.start()

    async def stop(self) -> None:
        await self._broker.close()


class TestLocal(AdapterContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return LocalHarness(tmp_path)
