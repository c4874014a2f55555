"""The broker in memory keeps the adapter contract. A restart keeps its memory: only sources are new."""

import pytest

from sidecar.brokers.base import Broker
from tests.brokers.contract import AdapterContract
from tests.brokers.harness import Harness
from tests.memory_broker import MemoryBroker


class MemoryHarness:
    def __init__(self) -> None:
        self._broker = MemoryBroker()

    async def start(self) -> Broker:
        await self._broker.open()
        return self._broker

    async def restart(self) -> Broker:
        return self._broker

    async def stop(self) -> None:
        await self._broker.close()


class TestMemory(AdapterContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return MemoryHarness()
