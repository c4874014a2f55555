"""NATS keeps the adapter contract."""

import pytest

from tests.brokers.contract import AdapterContract
from tests.brokers.harness import Harness
from tests.brokers.nats.harness import NatsHarness
from tests.servers.nats import NatsServer


class TestNats(AdapterContract):
    @pytest.fixture
    def harness(self, nats: NatsServer) -> Harness:
        return NatsHarness(nats)
