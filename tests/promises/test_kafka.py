"""The promises on Kafka."""

import pytest

from sidecar.brokers.kafka.options import GroupProtocol
from tests.brokers.harness import Harness
from tests.brokers.kafka.harness import KafkaHarness
from tests.promises.suite import Promises
from tests.promises.suite.rebalance_is_safe import RebalanceIsSafe
from tests.servers.kafka import KafkaServer


class TestKafka(Promises):
    """With groups that the broker assigns (KIP-848)."""

    @pytest.fixture
    def harness(self, kafka: KafkaServer) -> Harness:
        return KafkaHarness(kafka)


class TestClassicKafka(RebalanceIsSafe):
    """With groups that assign themselves."""

    @pytest.fixture
    def harness(self, kafka: KafkaServer) -> Harness:
        return KafkaHarness(kafka, GroupProtocol.CLASSIC)
