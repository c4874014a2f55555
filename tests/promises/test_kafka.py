"""The promises on Kafka."""

import pytest

from tests.brokers.kafka import KafkaHarness
from tests.promises.stage import Harness
from tests.promises.suite import Promises
from tests.servers.kafka import KafkaServer


class TestKafka(Promises):
    @pytest.fixture
    def harness(self, kafka: KafkaServer) -> Harness:
        return KafkaHarness(kafka)
