"""The promises on Pulsar, with each type of subscription."""

import pytest

from sidecar.brokers.pulsar.options import SubscriptionType
from tests.brokers.pulsar import PulsarHarness
from tests.promises.stage import Harness
from tests.promises.suite import Promises
from tests.servers.pulsar import PulsarServer


class TestExclusive(Promises):
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.EXCLUSIVE)


class TestFailover(Promises):
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.FAILOVER)


class TestShared(Promises):
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.SHARED)


class TestKeyShared(Promises):
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.KEY_SHARED)
