"""Pulsar keeps the adapter contract, with each subscription type."""

import pytest

from sidecar.brokers.pulsar.options import SubscriptionType
from tests.brokers.contract import AdapterContract
from tests.brokers.harness import Harness
from tests.brokers.pulsar import PulsarHarness
from tests.servers.pulsar import PulsarServer


class TestExclusive(AdapterContract):
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.EXCLUSIVE)


class TestFailover(AdapterContract):
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.FAILOVER)


class TestShared(AdapterContract):
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.SHARED)


class TestKeyShared(AdapterContract):
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.KEY_SHARED)
