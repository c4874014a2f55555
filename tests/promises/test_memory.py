"""The promises on the broker in memory."""

import pytest

from tests.brokers.harness import Harness
from tests.promises.memory import MemoryHarness, rebalancing_memory
from tests.promises.suite import Promises
from tests.promises.suite.rebalance_is_safe import RebalanceIsSafe


class TestMemory(Promises):
    @pytest.fixture
    def harness(self) -> Harness:
        return MemoryHarness()


class TestSharedMemory(RebalanceIsSafe):
    """With lanes that move between sidecars."""

    @pytest.fixture
    def harness(self) -> Harness:
        return rebalancing_memory()
