"""The broker in memory keeps the adapter contract. A restart keeps its memory: only sources are new."""

import pytest

from tests.brokers.contract import AdapterContract
from tests.brokers.harness import Harness
from tests.promises.memory import MemoryHarness


class TestMemory(AdapterContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return MemoryHarness()
