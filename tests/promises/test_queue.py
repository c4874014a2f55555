"""The promises on brokers with handles, in memory."""

import pytest

from tests.brokers.harness import Harness
from tests.brokers.queue.harness import STREAM, QueueHarness
from tests.promises.adjustable_time import AdjustableClock
from tests.promises.suite import Promises


class TestStream(Promises):
    @pytest.fixture
    def harness(self) -> Harness:
        return QueueHarness(STREAM, AdjustableClock())
