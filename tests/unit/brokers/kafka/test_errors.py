"""Errors of the library as broker errors, with a sentence for people."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.brokers.kafka.errors import is_fatal, says_fenced, says_no_consumer_protocol, translate
from sidecar.model.errors import BrokerError, NotFound, OutOfRoom, Refused, TooLarge, Unavailable

K = KafkaError


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (K._ALL_BROKERS_DOWN, Unavailable, "no broker can be reached"),
        (K._RESOLVE, Unavailable, "the name of a broker cannot be resolved; see `servers`"),
        (K._AUTHENTICATION, Refused, "the login was refused"),
        (K._SSL, Refused, "TLS failed"),
        (K.TOPIC_AUTHORIZATION_FAILED, Refused, "not authorised for the topic"),
        (K.GROUP_AUTHORIZATION_FAILED, Refused, "not authorised for the group"),
        (K.UNKNOWN_TOPIC_OR_PART, NotFound, "no such topic"),
        (K.MSG_SIZE_TOO_LARGE, TooLarge, "larger than the topic accepts; see its `max.message.bytes`"),
        (K.INVALID_TIMESTAMP, Refused, "does not accept this timestamp"),
        (K.KAFKA_STORAGE_ERROR, OutOfRoom, "disk"),
        (K.NOT_ENOUGH_REPLICAS, Unavailable, "in sync"),
        (K.FENCED_INSTANCE_ID, Refused, "group_instance_id"),
        # Not in our table: a retry may help, and Kafka's own text says more than ours could.
        (K.BROKER_NOT_AVAILABLE, Unavailable, "Broker not available"),
    ],
)
def test_each_error_has_a_kind_and_a_sentence(code: int, kind: type[BrokerError], said: str) -> None:
    for error in (KafkaError(code), KafkaException(KafkaError(code))):
        told = translate(error, "publish to orders")
        assert type(told) is kind
        assert str(told).startswith("Kafka: cannot publish to orders: ")
        assert said in str(told)


def test_details_for_the_authors_of_the_library_are_left_out() -> None:
    error = KafkaError(
        K._TRANSPORT, "k:1/bootstrap: Connect to k:1 failed: Connection refused (after 0ms in state CONNECT)"
    )
    assert str(translate(error, "connect")).endswith("(k:1/bootstrap: Connect to k:1 failed: Connection refused)")


def test_the_cause_of_a_fatal_error_is_recognised_by_its_text() -> None:
    old = KafkaError(K._FATAL, "Fatal error: Broker: API version not supported: ConsumerGroupHeartbeat fatal error")
    assert is_fatal(old)
    assert says_no_consumer_protocol(old)
    assert not says_fenced(old)
    assert "the broker is too old" in str(translate(old, "consume"))
    fenced = KafkaError(K._FATAL, f"Fatal error: {KafkaError(K.FENCED_INSTANCE_ID).str()}")
    assert says_fenced(fenced)
    assert isinstance(translate(fenced, "consume"), Refused)
