"""Translates errors of librdkafka into broker errors, with a sentence that says what happened and what to do."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from sidecar.model.errors import BrokerError, NotFound, OutOfRoom, Refused, TooLarge, Unavailable


class _Meaning(NamedTuple):
    kind: type[BrokerError]
    #: what happened and what to do; empty: Kafka's own text is clear enough
    sentence: str = ""
    #: add Kafka's own text
    detail: bool = False


_K = KafkaError
_MEANINGS: Mapping[int, _Meaning] = {
    # Connections.
    _K._ALL_BROKERS_DOWN: _Meaning(Unavailable, "no broker can be reached"),
    _K._TRANSPORT: _Meaning(Unavailable, "a broker cannot be reached", detail=True),
    _K._RESOLVE: _Meaning(Unavailable, "the name of a broker cannot be resolved; see `servers`", detail=True),
    _K._TIMED_OUT: _Meaning(Unavailable, "no broker answers in time"),
    _K._TIMED_OUT_QUEUE: _Meaning(Unavailable, "no broker answers in time"),
    _K._MSG_TIMED_OUT: _Meaning(Unavailable, "no broker accepted the message in time"),
    _K.REQUEST_TIMED_OUT: _Meaning(Unavailable, "the broker's replicas did not answer in time"),
    _K._SSL: _Meaning(Refused, "TLS failed; see `tls_ca` and the certificates of both sides", detail=True),
    # Authentication and authorisation.
    _K._AUTHENTICATION: _Meaning(Refused, "the login was refused; see `username` and `password`", detail=True),
    _K.SASL_AUTHENTICATION_FAILED: _Meaning(Refused, "the login was refused", detail=True),
    _K.UNSUPPORTED_SASL_MECHANISM: _Meaning(Refused, "the broker does not support this SASL mechanism; see `sasl`"),
    _K.TOPIC_AUTHORIZATION_FAILED: _Meaning(Refused, "not authorised for the topic: an ACL is missing"),
    _K.GROUP_AUTHORIZATION_FAILED: _Meaning(Refused, "not authorised for the group: an ACL is missing"),
    _K.CLUSTER_AUTHORIZATION_FAILED: _Meaning(Refused, "not authorised for the cluster: an ACL is missing"),
    # Topics and messages.
    _K.UNKNOWN_TOPIC_OR_PART: _Meaning(NotFound, "there is no such topic or lane"),
    _K._UNKNOWN_TOPIC: _Meaning(NotFound, "there is no such topic"),
    _K._UNKNOWN_PARTITION: _Meaning(NotFound, "the topic has no such lane"),
    _K.TOPIC_EXCEPTION: _Meaning(Refused, "this is not a valid name for a topic"),
    _K.INVALID_PARTITIONS: _Meaning(Refused, "the broker does not accept this number of lanes"),
    _K.INVALID_REPLICATION_FACTOR: _Meaning(
        Refused, "there are fewer brokers than replicas requested; see `replication_factor`", detail=True
    ),
    _K.INVALID_CONFIG: _Meaning(Refused, "the broker does not accept `topic_config`", detail=True),
    _K.POLICY_VIOLATION: _Meaning(Refused, "a policy of the broker forbids it", detail=True),
    _K.INVALID_TIMESTAMP: _Meaning(
        Refused, "the broker does not accept this timestamp; see `message.timestamp.*` of the topic"
    ),
    _K.UNSUPPORTED_FOR_MESSAGE_FORMAT: _Meaning(Refused, "the topic's message format is too old for this"),
    _K.UNSUPPORTED_COMPRESSION_TYPE: _Meaning(Refused, "the broker does not support this compression"),
    _K.INVALID_RECORD: _Meaning(Refused, "the broker does not accept this record", detail=True),
    _K.MSG_SIZE_TOO_LARGE: _Meaning(
        TooLarge, "the message is larger than the topic accepts; see its `max.message.bytes`"
    ),
    _K.RECORD_LIST_TOO_LARGE: _Meaning(TooLarge, "the message is larger than a segment of the topic's log"),
    _K._PURGE_QUEUE: _Meaning(Unavailable, "the producer failed before it sent the message, and was replaced"),
    _K.KAFKA_STORAGE_ERROR: _Meaning(OutOfRoom, "the broker cannot write to its disk"),
    _K.THROTTLING_QUOTA_EXCEEDED: _Meaning(OutOfRoom, "a quota of the broker is used up"),
    _K.NOT_ENOUGH_REPLICAS: _Meaning(Unavailable, "too few replicas of the lane are in sync"),
    _K.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _Meaning(Unavailable, "too few replicas of the lane are in sync"),
    # Groups.
    _K.FENCED_INSTANCE_ID: _Meaning(
        Refused, "another pod has the same `group_instance_id`; it must differ from pod to pod"
    ),
    _K.UNRELEASED_INSTANCE_ID: _Meaning(
        Unavailable,
        "another pod has the same `group_instance_id`, or this pod's previous run has not left the group yet",
    ),
    _K.INCONSISTENT_GROUP_PROTOCOL: _Meaning(
        Refused, "other members of the group use another group protocol; see `group_protocol`"
    ),
    _K.GROUP_MAX_SIZE_REACHED: _Meaning(Unavailable, "the group has as many members as the broker allows"),
    _K.UNSUPPORTED_VERSION: _Meaning(Refused, "the broker is too old for this", detail=True),
    _K._UNSUPPORTED_FEATURE: _Meaning(Refused, "the broker is too old for this", detail=True),
    _K._INVALID_ARG: _Meaning(Refused, "", detail=True),
}

#: errors of a commit during a rebalance; it may succeed when it is sent again
REBALANCING = frozenset(
    (_K.STALE_MEMBER_EPOCH, _K.REBALANCE_IN_PROGRESS, _K.ILLEGAL_GENERATION, _K.UNKNOWN_MEMBER_ID, _K._WAIT_COORD)
)
#: the broker or the group does not support the group protocol `consumer`
_NO_CONSUMER_PROTOCOL = (_K.UNSUPPORTED_VERSION, _K._UNSUPPORTED_FEATURE, _K.INCONSISTENT_GROUP_PROTOCOL)
#: another member has taken the place of this one
_FENCED = (_K.FENCED_INSTANCE_ID,)
#: errors that say that nothing works, but not why
VAGUE = frozenset((_K._ALL_BROKERS_DOWN, _K._TIMED_OUT, _K._TRANSPORT, _K._MSG_TIMED_OUT, _K._TIMED_OUT_QUEUE))
#: errors of all connections: over when a broker answers
OF_CONNECTIONS = VAGUE | {
    _K._AUTHENTICATION,
    _K._SSL,
    _K._RESOLVE,
    _K.SASL_AUTHENTICATION_FAILED,
    _K.UNSUPPORTED_SASL_MECHANISM,
    _K.ILLEGAL_SASL_STATE,
}
#: errors of the connection to one broker: the library continues with the others
OF_ONE_BROKER = frozenset((_K._TRANSPORT, _K._RESOLVE))
#: errors of one topic: the others continue
OF_TOPICS = frozenset(
    (_K.UNKNOWN_TOPIC_OR_PART, _K._UNKNOWN_TOPIC, _K._UNKNOWN_PARTITION, _K.TOPIC_AUTHORIZATION_FAILED)
)


def is_fatal(error: KafkaError) -> bool:
    """Whether the client that reports it can never work again."""
    return error.fatal() or error.code() == KafkaError._FATAL


def says_no_consumer_protocol(error: KafkaError) -> bool:
    return _says(error, _NO_CONSUMER_PROTOCOL)


def says_fenced(error: KafkaError) -> bool:
    """Whether another member has permanently taken the place of this one."""
    return _says(error, _FENCED)


def _says(error: KafkaError, codes: Collection[int]) -> bool:
    """A fatal error carries the text of its cause, but not the code."""
    if error.code() == KafkaError._FATAL:
        return any(KafkaError(code).str() in error.str() for code in codes)
    return error.code() in codes


def kafka_error(error: KafkaError | KafkaException) -> KafkaError:
    """The error that an exception carries."""
    if isinstance(error, KafkaException):
        inner: KafkaError = error.args[0]
        return inner
    return error


def translate(error: KafkaError | KafkaException, doing: str) -> BrokerError:
    """A broker error. `doing` is what was tried, as in `publish to orders`."""
    inner = kafka_error(error)
    if inner.code() == KafkaError._FATAL:
        inner = next((known for known in map(KafkaError, _MEANINGS) if known.str() in inner.str()), inner)
    meaning = _MEANINGS.get(inner.code(), _Meaning(Unavailable, "", detail=True))
    detail = _shortened(inner.str())
    if not meaning.sentence:
        sentence = detail
    elif meaning.detail and detail:
        sentence = f"{meaning.sentence} ({detail})"
    else:
        sentence = meaning.sentence
    return meaning.kind(f"Kafka: cannot {doing}: {sentence}")


def _shortened(text: str) -> str:
    """Without details that only help the authors of the library."""
    return text.partition(" (after ")[0].removeprefix("Broker: ").removeprefix("Local: ").rstrip(".")
