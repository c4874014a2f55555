"""The promises on the broker in memory."""

import pytest

from tests.promises.harnesses import MemoryHarness, shared_memory
from tests.promises.rebalance import RebalanceIsSafe
from tests.promises.stage import Harness
from tests.promises.suite import Promises


class TestMemory(Promises):
    @pytest.fixture
    def harness(self) -> Harness:
        return MemoryHarness()


class TestSharedMemory(RebalanceIsSafe):
    """With lanes that move between sidecars."""

    @pytest.fixture
    def harness(self) -> Harness:
        return shared_memory()
