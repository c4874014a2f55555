"""Problems with Kafka: each has a sentence of its own, in the status and in the log."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from offramp.v1 import admin_pb2, admin_pb2_grpc, publish_pb2, publish_pb2_grpc
from tests.brokers.harness import name
from tests.brokers.kafka.harness import grant, revoke, right
from tests.e2e.broker_case import BrokerCase
from tests.e2e.harness import WAIT_TIMEOUT, eventually
from tests.servers.kafka import ADMIN, READER, KafkaServer
from tests.servers.process import free_ports


class Case(BrokerCase):
    jargon = "KafkaError"

    def __init__(self, folder: Path, **broker: Any) -> None:
        super().__init__(folder, name("topic"), {"type": "kafka", **broker})

    def troubles(self) -> list[str]:
        """Of the subscription and of the broker."""
        with self.sidecar.channel() as channel:
            asked = admin_pb2_grpc.AdminServiceStub(channel).GetStatus(
                admin_pb2.GetStatusRequest(), timeout=WAIT_TIMEOUT
            )
        lines = [line for one in asked.status.subscriptions for line in one.trouble]
        return [*lines, *(one.trouble for one in asked.status.brokers if one.trouble)]

    def works(self, kafka: KafkaServer) -> None:
        """It gets what is published now."""
        eventually(lambda: not self.troubles(), "the trouble is over", 120.0)
        before = self.sidecar.status().counters.fetched
        kafka.publish(self.topic, b"value")
        eventually(lambda: self.sidecar.status().counters.fetched > before, "a record comes")


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Any]:
    with contextlib.ExitStack() as cases:

        def make(**broker: Any) -> Case:
            made = Case(tmp_path, **broker)
            cases.push(made.sidecar.__exit__)
            return made

        yield make


def test_an_address_where_nobody_listens(case: Any) -> None:
    (port,) = free_ports(1)
    case(servers=[f"127.0.0.1:{port}"]).start().trouble("reach")


def test_a_name_that_nobody_knows(case: Any) -> None:
    case(servers=["no-such-host.invalid:9092"]).start().trouble("no-such-host.invalid")


@pytest.mark.xdist_group("own-kafka")
def test_a_broker_that_starts_after_the_sidecar(case: Any, own_kafka: KafkaServer) -> None:
    own_kafka.kill()
    one = case(servers=[own_kafka.bootstrap]).start()
    one.trouble("reach")
    own_kafka.start()
    own_kafka.make_topic(one.topic)
    one.works(own_kafka)


def test_a_wrong_password(case: Any, kafka: KafkaServer) -> None:
    one = case(servers=[kafka.addresses.sasl], sasl="plain", username=ADMIN.name, password="wr0ng-pass")
    one.start().trouble("login was refused")
    assert "wr0ng-pass" not in one.sidecar.log


def test_a_login_where_none_is_asked_for_and_none_where_one_is(case: Any, kafka: KafkaServer) -> None:
    # The listener closes the connection without a word.
    case(servers=[kafka.addresses.sasl]).start().trouble("Kafka")


def test_a_certificate_that_is_not_trusted(case: Any, kafka: KafkaServer) -> None:
    case(servers=[kafka.addresses.ssl], tls=True).start().trouble("TLS")


@pytest.mark.parametrize("sasl", ["plain", "scram-sha-256"])
def test_login_with_tls_works(case: Any, kafka: KafkaServer, tmp_path: Path, sasl: str) -> None:
    secret = tmp_path / "password"
    secret.write_text(f"{ADMIN.password}\n")
    one = case(
        servers=[kafka.addresses.sasl_ssl],
        tls=True,
        tls_ca=str(kafka.ca),
        sasl=sasl,
        username=ADMIN.name,
        password_file=str(secret),
    )
    kafka.make_topic(one.topic)
    one.sidecar.start()
    one.works(kafka)
    assert ADMIN.password not in one.sidecar.log


def test_tls_without_login_works(case: Any, kafka: KafkaServer) -> None:
    one = case(servers=[kafka.addresses.ssl], tls=True, tls_ca=str(kafka.ca))
    kafka.make_topic(one.topic)
    one.sidecar.start()
    one.works(kafka)


def test_missing_rights_are_named_one_after_the_other(case: Any, kafka: KafkaServer) -> None:
    one = case(servers=[kafka.addresses.sasl], sasl="plain", username=READER.name, password=READER.password)
    kafka.make_topic(one.topic)
    grant(kafka, right(ResourceType.GROUP, one.topic))
    one.start().trouble("not authorised", "topic")
    assert one.sidecar.status().state == admin_pb2.SUBSCRIPTION_STATE_FAILED
    grant(kafka, right(ResourceType.TOPIC, one.topic, AclOperation.ALL, pattern=ResourcePatternType.PREFIXED))
    denial = right(ResourceType.GROUP, one.topic, permission=AclPermissionType.DENY)
    grant(kafka, denial)
    one.trouble("not authorised", "group")
    revoke(kafka, denial)
    one.trouble("not authorised", f"group {one.topic}.offramp.retry")
    grant(kafka, right(ResourceType.GROUP, f"{one.topic}.offramp.retry"))
    one.works(kafka)


def test_a_topic_that_is_missing(case: Any, kafka: KafkaServer) -> None:
    one = case(servers=[kafka.bootstrap]).start()
    one.trouble(one.topic)
    kafka.make_topic(one.topic)
    one.works(kafka)


@pytest.mark.xdist_group("own-kafka")
def test_a_broker_that_goes_away_and_comes_back(case: Any, own_kafka: KafkaServer) -> None:
    one = case(servers=[own_kafka.bootstrap])
    own_kafka.make_topic(one.topic)
    one.sidecar.start()
    own_kafka.kill()
    one.trouble("Kafka")
    own_kafka.start()
    one.works(own_kafka)


def test_a_message_that_is_too_large_is_refused_with_that_reason(case: Any, kafka: KafkaServer) -> None:
    one = case(servers=[kafka.bootstrap])
    kafka.make_topic(one.topic, max_message_bytes="2000")
    one.sidecar.start()
    messages = [publish_pb2.Message(value=bytes(3000))]
    request = publish_pb2.PublishRequest(broker="it", topic=one.topic, messages=messages)
    with one.sidecar.channel() as channel, pytest.raises(grpc.RpcError, match="larger"):
        publish_pb2_grpc.PublishServiceStub(channel).Publish(request, timeout=WAIT_TIMEOUT)
