"""The promises on brokers with handles, in memory: on a stream with groups, and on a queue that all share.

Their messages have numbers, so that the suite knows the positions of what it publishes.
"""

import pytest

from tests.brokers.harness import Harness
from tests.brokers.queue.harness import STREAM, QueueHarness
from tests.brokers.queue.memory_driver import Nature
from tests.promises.adjustable_time import AdjustableClock
from tests.promises.suite import Promises


class TestStream(Promises):
    @pytest.fixture
    def harness(self) -> Harness:
        return QueueHarness(STREAM, AdjustableClock())


class TestSharedQueue(Promises):
    @pytest.fixture
    def harness(self) -> Harness:
        return QueueHarness(Nature(numbered=True), AdjustableClock())
