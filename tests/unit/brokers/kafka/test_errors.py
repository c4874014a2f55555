"""What Kafka says, for people and for the core."""

import logging

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.brokers.kafka.errors import is_fatal, says_fenced, says_no_consumer_protocol, translate
from sidecar.brokers.kafka.library_logs import Chatter, Reasons
from sidecar.model.errors import BrokerError, NotFound, OutOfRoom, Refused, TooLarge, Unavailable

K = KafkaError


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (K._ALL_BROKERS_DOWN, Unavailable, "no broker can be reached"),
        (K._RESOLVE, Unavailable, "the name of a broker is not known; see `servers`"),
        (K._AUTHENTICATION, Refused, "the login was refused"),
        (K._SSL, Refused, "TLS failed"),
        (K.TOPIC_AUTHORIZATION_FAILED, Refused, "not authorised for the topic"),
        (K.GROUP_AUTHORIZATION_FAILED, Refused, "not authorised for the group"),
        (K.UNKNOWN_TOPIC_OR_PART, NotFound, "no such topic"),
        (K.MSG_SIZE_TOO_LARGE, TooLarge, "larger than the topic takes; see its `max.message.bytes`"),
        (K.INVALID_TIMESTAMP, Refused, "does not take this time"),
        (K.KAFKA_STORAGE_ERROR, OutOfRoom, "disk"),
        (K.NOT_ENOUGH_REPLICAS, Unavailable, "in sync"),
        (K.FENCED_INSTANCE_ID, Refused, "group_instance_id"),
        # One that nobody thought of: a retry may help, and Kafka's own words tell more than ours could.
        (K.BROKER_NOT_AVAILABLE, Unavailable, "Broker not available"),
    ],
)
def test_each_error_has_a_kind_and_a_sentence(code: int, kind: type[BrokerError], said: str) -> None:
    for error in (KafkaError(code), KafkaException(KafkaError(code))):
        told = translate(error, "publish to orders")
        assert type(told) is kind
        assert str(told).startswith("Kafka: cannot publish to orders: ")
        assert said in str(told)


def test_what_is_only_for_the_authors_of_the_library_is_left_out() -> None:
    error = KafkaError(
        K._TRANSPORT, "k:1/bootstrap: Connect to k:1 failed: Connection refused (after 0ms in state CONNECT)"
    )
    assert str(translate(error, "connect")).endswith("(k:1/bootstrap: Connect to k:1 failed: Connection refused)")


def test_one_that_ends_a_client_is_known_by_what_it_says() -> None:
    old = KafkaError(K._FATAL, "Fatal error: Broker: API version not supported: ConsumerGroupHeartbeat fatal error")
    assert is_fatal(old)
    assert says_no_consumer_protocol(old)
    assert not says_fenced(old)
    assert "the broker is too old" in str(translate(old, "consume"))
    fenced = KafkaError(K._FATAL, f"Fatal error: {KafkaError(K.FENCED_INSTANCE_ID).str()}")
    assert says_fenced(fenced)
    assert isinstance(translate(fenced, "consume"), Refused)


def test_a_call_that_only_timed_out_did_so_for_the_reason_that_was_heard_last() -> None:
    reasons = Reasons()
    late = KafkaError(K._TIMED_OUT)
    assert reasons.behind(late) is late
    refused = KafkaError(K._AUTHENTICATION)
    reasons.heard(refused)
    # This says less than what is known already.
    reasons.heard(KafkaError(K._ALL_BROKERS_DOWN))
    assert reasons.behind(late) is refused
    clear = KafkaError(K.TOPIC_AUTHORIZATION_FAILED)
    assert reasons.behind(clear) is clear


def test_a_line_of_the_library_is_told_once_and_rarely_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    logger = Chatter().logger
    with caplog.at_level(logging.DEBUG, "offramp.kafka"):
        for number in range(3):
            logger.error(f"FAIL [offramp#consumer-{number}] Connect failed")
            logger.warning(f"STRANGE [offramp#consumer-{number}] something")
    assert [(record.levelname, record.message.split()[0]) for record in caplog.records] == [
        ("DEBUG", "FAIL"),
        ("WARNING", "STRANGE"),
    ]
