"""What can be wrong with a Kafka: each trouble has its own line, in the status and in the log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from offramp.v1 import admin_pb2, admin_pb2_grpc, publish_pb2, publish_pb2_grpc
from tests.brokers.kafka import name
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually
from tests.servers.fixtures import NewKafka
from tests.servers.kafka import ADMIN, READER, KafkaServer
from tests.servers.process import free_ports


class Case:
    """A sidecar whose broker is set up in some way."""

    def __init__(self, folder: Path, **broker: Any) -> None:
        self.topic = name("topic")
        subscription = {"broker": "kafka", "topics": [self.topic], "group": self.topic}
        kafka = {"type": "kafka", **broker}
        self.sidecar = Sidecar(folder, subscriptions={"orders": subscription}, brokers={"kafka": kafka})

    def start(self) -> "Case":
        """It answers, whatever the broker does."""
        self.sidecar.launch()
        eventually(self._answers, "the sidecar answers")
        return self

    def _answers(self) -> bool:
        try:
            self.sidecar.status()
        except grpc.RpcError:
            return False
        return True

    def trouble(self, *words: str) -> str:
        """Waits for a line of the status, and of the log, that has these words; answers the line."""

        def told() -> str:
            return next((line for line in self.troubles() if all(word in line for word in words)), "")

        line = eventually(told, f"the status says {words}")
        eventually(
            lambda: any(all(word in str(event) for word in words) for event in self.sidecar.events()),
            f"the log says {words}",
        )
        # A line is for people.
        assert "KafkaError" not in line
        assert "Traceback" not in self.sidecar.log
        return line

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
    made: list[Case] = []

    def make(**broker: Any) -> Case:
        made.append(Case(tmp_path, **broker))
        return made[-1]

    yield make
    for one in made:
        if one.sidecar._process is not None:
            one.sidecar.__exit__(None, None, None)


def test_an_address_where_nobody_listens(case: Any) -> None:
    (port,) = free_ports(1)
    case(servers=[f"127.0.0.1:{port}"]).start().trouble("reach")


def test_a_name_that_nobody_knows(case: Any) -> None:
    case(servers=["no-such-host.invalid:9092"]).start().trouble("no-such-host.invalid")


def test_a_broker_that_starts_after_the_sidecar(case: Any, new_kafka: NewKafka) -> None:
    kafka = new_kafka()
    kafka.kill()
    one = case(servers=[kafka.bootstrap]).start()
    one.trouble("reach")
    kafka.start()
    kafka.make_topic(one.topic)
    one.works(kafka)


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
    _allow(kafka, ResourceType.GROUP, one.topic, AclOperation.READ)
    one.start().trouble("not authorised", "topic")
    assert one.sidecar.status().state == admin_pb2.SUBSCRIPTION_STATE_FAILED
    _allow(kafka, ResourceType.TOPIC, one.topic, AclOperation.ALL, ResourcePatternType.PREFIXED)
    _deny(kafka, ResourceType.GROUP, one.topic, AclOperation.READ)
    one.trouble("not authorised", "group")
    _undeny(kafka, ResourceType.GROUP, one.topic, AclOperation.READ)
    one.trouble("not authorised", f"group {one.topic}.offramp.retry")
    _allow(kafka, ResourceType.GROUP, f"{one.topic}.offramp.retry", AclOperation.READ)
    one.works(kafka)


def test_a_topic_that_is_missing(case: Any, kafka: KafkaServer) -> None:
    one = case(servers=[kafka.bootstrap]).start()
    one.trouble(one.topic)
    kafka.make_topic(one.topic)
    one.works(kafka)


def test_a_broker_that_goes_away_and_comes_back(case: Any, new_kafka: NewKafka) -> None:
    kafka = new_kafka()
    one = case(servers=[kafka.bootstrap])
    kafka.make_topic(one.topic)
    one.sidecar.start()
    kafka.kill()
    one.trouble("Kafka")
    kafka.start()
    one.works(kafka)


def test_a_message_that_is_too_large_is_refused_with_that_reason(case: Any, kafka: KafkaServer) -> None:
    one = case(servers=[kafka.bootstrap])
    kafka.make_topic(one.topic, max_message_bytes="2000")
    one.sidecar.start()
    request = publish_pb2.PublishRequest(
        broker="kafka", topic=one.topic, messages=[publish_pb2.Message(value=bytes(3000))]
    )
    with one.sidecar.channel() as channel, pytest.raises(grpc.RpcError) as raised:
        publish_pb2_grpc.PublishServiceStub(channel).Publish(request, timeout=WAIT_TIMEOUT)
    assert "larger" in raised.value.details()


def _allow(
    kafka: KafkaServer,
    kind: ResourceType,
    resource: str,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> None:
    _grant(kafka, AclBinding(kind, resource, pattern, f"User:{READER.name}", "*", operation, AclPermissionType.ALLOW))


def _denial(kind: ResourceType, resource: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        kind, resource, ResourcePatternType.LITERAL, f"User:{READER.name}", "*", operation, AclPermissionType.DENY
    )


def _deny(kafka: KafkaServer, kind: ResourceType, resource: str, operation: AclOperation) -> None:
    _grant(kafka, _denial(kind, resource, operation))


def _undeny(kafka: KafkaServer, kind: ResourceType, resource: str, operation: AclOperation) -> None:
    from confluent_kafka.admin import AclBindingFilter

    one = _denial(kind, resource, operation)
    found = AclBindingFilter(
        one.restype, one.name, one.resource_pattern_type, one.principal, one.host, one.operation, one.permission_type
    )
    for answer in kafka.admin.delete_acls([found]).values():
        answer.result(20)


def _grant(kafka: KafkaServer, binding: AclBinding) -> None:
    for answer in kafka.admin.create_acls([binding]).values():
        answer.result(20)
