"""Kafka keeps the adapter contract."""

import pytest

from sidecar.brokers.kafka.options import GroupProtocol
from tests.brokers.contract import AdapterContract
from tests.brokers.contract.committing import Committing
from tests.brokers.contract.opening import Opening
from tests.brokers.contract.pausing import Pausing
from tests.brokers.harness import Harness
from tests.brokers.kafka.harness import KafkaHarness
from tests.servers.kafka import KafkaServer


class TestKafka(AdapterContract):
    """With groups that the broker shares out (KIP-848)."""

    @pytest.fixture
    def harness(self, kafka: KafkaServer) -> Harness:
        return KafkaHarness(kafka)


class TestClassicKafka(Opening, Pausing, Committing):
    """With groups that share out themselves; what has to do with groups."""

    @pytest.fixture
    def harness(self, kafka: KafkaServer) -> Harness:
        return KafkaHarness(kafka, GroupProtocol.CLASSIC)
