"""Pulsar keeps the adapter contract, with each subscription type.

Two types are tested in whole: one that acks positions, and one that acks single messages. The other two differ from
these in who gets which lane, so in the short form they are tested in what has to do with that.
"""

import os
from typing import Any

import pytest

from sidecar.brokers.pulsar.options import SubscriptionType
from tests.brokers.contract import AdapterContract
from tests.brokers.contract.committing import Committing
from tests.brokers.contract.opening import Opening
from tests.brokers.contract.pausing import Pausing
from tests.brokers.harness import Harness
from tests.brokers.pulsar import PulsarHarness
from tests.servers.pulsar import PulsarServer


class WhoGetsWhat(Opening, Pausing, Committing):
    """What depends on how lanes and messages are shared out."""


Some: Any = AdapterContract if os.environ.get("OFFRAMP_TEST_LONG") else WhoGetsWhat


class TestExclusive(AdapterContract):
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.EXCLUSIVE)


class TestFailover(Some):  # type: ignore[misc]
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.FAILOVER)


class TestShared(AdapterContract):
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.SHARED)


class TestKeyShared(Some):  # type: ignore[misc]
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.KEY_SHARED)
