"""Pulsar keeps the adapter contract, with each subscription type.

Two types are tested in whole: one that acks positions, and one that acks single messages. The other two differ from
these in who gets which lane, so in the short form they are tested in what has to do with that.
"""

import os
from typing import Any

from sidecar.brokers.pulsar.options import SubscriptionType
from tests.brokers.contract import AdapterContract
from tests.brokers.contract.committing import Committing
from tests.brokers.contract.opening import Opening
from tests.brokers.contract.pausing import Pausing
from tests.brokers.pulsar.harness import OnPulsar


class WhoGetsWhat(Opening, Pausing, Committing):
    """What depends on how lanes and messages are shared out."""


Some: Any = AdapterContract if os.environ.get("OFFRAMP_TEST_LONG") else WhoGetsWhat


class TestExclusive(OnPulsar, AdapterContract):
    kind = SubscriptionType.EXCLUSIVE


class TestFailover(OnPulsar, Some):  # type: ignore[misc]
    kind = SubscriptionType.FAILOVER


class TestShared(OnPulsar, AdapterContract):
    kind = SubscriptionType.SHARED


class TestKeyShared(OnPulsar, Some):  # type: ignore[misc]
    kind = SubscriptionType.KEY_SHARED
