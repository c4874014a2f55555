"""The promises on Pulsar, with each type of subscription."""

import os
from typing import Any

from sidecar.brokers.pulsar.options import SubscriptionType
from tests.brokers.pulsar.harness import OnPulsar
from tests.promises.suite import Promises
from tests.promises.suite.drain_is_orderly import DrainIsOrderly
from tests.promises.suite.nothing_is_lost import NothingIsLost
from tests.promises.suite.order_as_chosen import OrderAsChosen
from tests.promises.suite.rebalance_is_safe import RebalanceIsSafe
from tests.promises.suite.restart_forgets_little import RestartForgetsLittle


class WhoGetsWhat(NothingIsLost, OrderAsChosen, RebalanceIsSafe, RestartForgetsLittle, DrainIsOrderly):
    """The promises that depend on the type of subscription. The others are the same for all types: in the short form
    they are tested with one of them."""


Some: Any = Promises if os.environ.get("OFFRAMP_TEST_LONG") else WhoGetsWhat


class TestExclusive(OnPulsar, Some):  # type: ignore[misc]
    kind = SubscriptionType.EXCLUSIVE


class TestFailover(OnPulsar, Some):  # type: ignore[misc]
    kind = SubscriptionType.FAILOVER


class TestShared(OnPulsar, Promises):
    kind = SubscriptionType.SHARED


class TestKeyShared(OnPulsar, Some):  # type: ignore[misc]
    kind = SubscriptionType.KEY_SHARED
