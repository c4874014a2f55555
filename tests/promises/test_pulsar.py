"""The promises on Pulsar, with each type of subscription."""

import os
from typing import Any

import pytest

from sidecar.brokers.pulsar.options import SubscriptionType
from tests.brokers.pulsar import PulsarHarness
from tests.promises.drains import DrainIsOrderly
from tests.promises.nothing_is_lost import NothingIsLost
from tests.promises.order import OrderAsChosen
from tests.promises.rebalance import RebalanceIsSafe
from tests.promises.restarts import ARestartForgetsLittle
from tests.promises.stage import Harness
from tests.promises.suite import Promises
from tests.servers.pulsar import PulsarServer


class WhoGetsWhat(NothingIsLost, OrderAsChosen, RebalanceIsSafe, ARestartForgetsLittle, DrainIsOrderly):
    """The promises that depend on it. The others are the same with all types: all of them are long."""


Some: Any = Promises if os.environ.get("OFFRAMP_TEST_LONG") else WhoGetsWhat


class TestExclusive(Promises):
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.EXCLUSIVE)


class TestFailover(Some):  # type: ignore[misc]
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.FAILOVER)


class TestShared(Promises):
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.SHARED)


class TestKeyShared(Some):  # type: ignore[misc]
    @pytest.fixture
    def harness(self, pulsar: PulsarServer) -> Harness:
        return PulsarHarness(pulsar, SubscriptionType.KEY_SHARED)
