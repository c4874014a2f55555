"""The promises on Pulsar, with each type of subscription."""

import os
from typing import Any

import pytest

from sidecar.brokers.pulsar.options import SubscriptionType
from tests.brokers.harness import Harness
from tests.brokers.pulsar import PulsarHarness
from tests.promises.suite import Promises
from tests.promises.suite.drain_is_orderly import DrainIsOrderly
from tests.promises.suite.nothing_is_lost import NothingIsLost
from tests.promises.suite.order_as_chosen import OrderAsChosen
from tests.promises.suite.rebalance_is_safe import RebalanceIsSafe
from tests.promises.suite.restart_forgets_little import RestartForgetsLittle
from tests.servers.pulsar import PulsarServer


class WhoGetsWhat(NothingIsLost, OrderAsChosen, RebalanceIsSafe, RestartForgetsLittle, DrainIsOrderly):
    """The promises that depend on the type of subscription. The others are the same for all types: in the short form
    they are tested with one of them."""


Some: Any = Promises if os.environ.get("OFFRAMP_TEST_LONG") else WhoGetsWhat


class TestExclusive(Some):  # type: ignore[misc]
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
