"""The mechanism for brokers with handles keeps the adapter contract."""

import pytest

from tests.brokers.contract import AdapterContract
from tests.brokers.harness import Harness
from tests.brokers.queue.harness import PLAIN, STREAM, QueueHarness


class TestStream(AdapterContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return QueueHarness(STREAM)


class TestPlainQueue(AdapterContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return QueueHarness(PLAIN)
