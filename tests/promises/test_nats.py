"""The promises on NATS JetStream."""

import pytest

from tests.brokers.harness import Harness
from tests.brokers.nats.harness import NEVER, NatsHarness
from tests.promises.adjustable_time import AdjustableClock
from tests.promises.suite import Promises
from tests.servers.nats import NatsServer


class TestNats(Promises):
    @pytest.fixture
    def harness(self, nats: NatsServer) -> Harness:
        return NatsHarness(nats, AdjustableClock(), timeout=NEVER)
