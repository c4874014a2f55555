"""What Kafka says, in one sentence for people, and as one of our errors for the core."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from sidecar.model.errors import BrokerError, NotFound, OutOfRoom, Refused, TooLarge, Unavailable


class _Meaning(NamedTuple):
    kind: type[BrokerError]
    #: what happened and what to do about it; empty: what Kafka says is clear enough
    sentence: str = ""
    #: what Kafka says is added
    detail: bool = False


_K = KafkaError
_MEANINGS: Mapping[int, _Meaning] = {
    # The way to the broker.
    _K._ALL_BROKERS_DOWN: _Meaning(Unavailable, "no broker can be reached"),
    _K._TRANSPORT: _Meaning(Unavailable, "a broker cannot be reached", detail=True),
    _K._RESOLVE: _Meaning(Unavailable, "the name of a broker is not known; see `servers`", detail=True),
    _K._TIMED_OUT: _Meaning(Unavailable, "no broker answers in time"),
    _K._TIMED_OUT_QUEUE: _Meaning(Unavailable, "no broker answers in time"),
    _K._MSG_TIMED_OUT: _Meaning(Unavailable, "no broker took the message in time"),
    _K.REQUEST_TIMED_OUT: _Meaning(Unavailable, "the broker's replicas did not answer in time"),
    _K._SSL: _Meaning(Refused, "TLS failed; see `tls_ca` and the certificates of both sides", detail=True),
    # Who we are and what we may.
    _K._AUTHENTICATION: _Meaning(Refused, "the login was refused; see `username` and `password`", detail=True),
    _K.SASL_AUTHENTICATION_FAILED: _Meaning(Refused, "the login was refused", detail=True),
    _K.UNSUPPORTED_SASL_MECHANISM: _Meaning(Refused, "the broker does not know this way to log in; see `sasl`"),
    _K.TOPIC_AUTHORIZATION_FAILED: _Meaning(Refused, "not authorised for the topic: an ACL is missing"),
    _K.GROUP_AUTHORIZATION_FAILED: _Meaning(Refused, "not authorised for the group: an ACL is missing"),
    _K.CLUSTER_AUTHORIZATION_FAILED: _Meaning(Refused, "not authorised for the cluster: an ACL is missing"),
    # Topics and messages.
    _K.UNKNOWN_TOPIC_OR_PART: _Meaning(NotFound, "there is no such topic or lane"),
    _K._UNKNOWN_TOPIC: _Meaning(NotFound, "there is no such topic"),
    _K._UNKNOWN_PARTITION: _Meaning(NotFound, "the topic has no such lane"),
    _K.TOPIC_EXCEPTION: _Meaning(Refused, "that is not a name for a topic"),
    _K.INVALID_PARTITIONS: _Meaning(Refused, "the broker does not take this number of lanes"),
    _K.INVALID_REPLICATION_FACTOR: _Meaning(
        Refused, "there are fewer brokers than replicas asked for; see `replication_factor`", detail=True
    ),
    _K.INVALID_CONFIG: _Meaning(Refused, "the broker does not take `topic_config`", detail=True),
    _K.POLICY_VIOLATION: _Meaning(Refused, "a policy of the broker forbids it", detail=True),
    _K.INVALID_TIMESTAMP: _Meaning(
        Refused, "the broker does not take this time; see `message.timestamp.*` of the topic"
    ),
    _K.UNSUPPORTED_FOR_MESSAGE_FORMAT: _Meaning(Refused, "the topic's message format is too old for this"),
    _K.UNSUPPORTED_COMPRESSION_TYPE: _Meaning(Refused, "the broker does not know this compression"),
    _K.INVALID_RECORD: _Meaning(Refused, "the broker does not take this record", detail=True),
    _K.MSG_SIZE_TOO_LARGE: _Meaning(
        TooLarge, "the message is larger than the topic takes; see its `max.message.bytes`"
    ),
    _K.RECORD_LIST_TOO_LARGE: _Meaning(TooLarge, "the message is larger than a segment of the topic's log"),
    _K._PURGE_QUEUE: _Meaning(Unavailable, "the library's producer failed before it was sent, and was replaced"),
    _K.KAFKA_STORAGE_ERROR: _Meaning(OutOfRoom, "the broker cannot write to its disk"),
    _K.THROTTLING_QUOTA_EXCEEDED: _Meaning(OutOfRoom, "a quota of the broker is used up"),
    _K.NOT_ENOUGH_REPLICAS: _Meaning(Unavailable, "too few replicas of the lane are in sync"),
    _K.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _Meaning(Unavailable, "too few replicas of the lane are in sync"),
    # Groups.
    _K.FENCED_INSTANCE_ID: _Meaning(
        Refused, "another pod has the same `group_instance_id`; it must differ from pod to pod"
    ),
    _K.UNRELEASED_INSTANCE_ID: _Meaning(
        Unavailable, "another pod has the same `group_instance_id`, or its earlier life has not left yet"
    ),
    _K.INCONSISTENT_GROUP_PROTOCOL: _Meaning(
        Refused, "other members of the group share out its lanes in another way; see `group_protocol`"
    ),
    _K.GROUP_MAX_SIZE_REACHED: _Meaning(Unavailable, "the group has as many members as the broker allows"),
    _K.UNSUPPORTED_VERSION: _Meaning(Refused, "the broker is too old for this", detail=True),
    _K._UNSUPPORTED_FEATURE: _Meaning(Refused, "the broker is too old for this", detail=True),
    _K._INVALID_ARG: _Meaning(Refused, "", detail=True),
}

#: what a commit may meet while a rebalance is under way; sent again, it may succeed
REBALANCING = frozenset(
    (_K.STALE_MEMBER_EPOCH, _K.REBALANCE_IN_PROGRESS, _K.ILLEGAL_GENERATION, _K.UNKNOWN_MEMBER_ID, _K._WAIT_COORD)
)
#: the broker does not speak the group protocol `consumer`, or the group does not
_NO_CONSUMER_PROTOCOL = (_K.UNSUPPORTED_VERSION, _K._UNSUPPORTED_FEATURE, _K.INCONSISTENT_GROUP_PROTOCOL)
#: of one that ends the consumer the library gives the text, not the number
_FENCED = (_K.FENCED_INSTANCE_ID,)
#: says that nothing works, but not why
VAGUE = frozenset((_K._ALL_BROKERS_DOWN, _K._TIMED_OUT, _K._TRANSPORT, _K._MSG_TIMED_OUT, _K._TIMED_OUT_QUEUE))
#: of the way to the brokers: over when one answers
OF_CONNECTIONS = VAGUE | {
    _K._AUTHENTICATION,
    _K._SSL,
    _K._RESOLVE,
    _K.SASL_AUTHENTICATION_FAILED,
    _K.UNSUPPORTED_SASL_MECHANISM,
    _K.ILLEGAL_SASL_STATE,
}
#: of the way to one of them: the library goes on with the others
OF_ONE_BROKER = frozenset((_K._TRANSPORT, _K._RESOLVE))
#: of some topic: the others go on
OF_TOPICS = frozenset(
    (_K.UNKNOWN_TOPIC_OR_PART, _K._UNKNOWN_TOPIC, _K._UNKNOWN_PARTITION, _K.TOPIC_AUTHORIZATION_FAILED)
)


def is_fatal(error: KafkaError) -> bool:
    """The client that met it will never work again."""
    return error.fatal() or error.code() == KafkaError._FATAL


def says_no_consumer_protocol(error: KafkaError) -> bool:
    return _says(error, _NO_CONSUMER_PROTOCOL)


def says_fenced(error: KafkaError) -> bool:
    """Another member has taken our place, for good."""
    return _says(error, _FENCED)


def _says(error: KafkaError, codes: Collection[int]) -> bool:
    if error.code() == KafkaError._FATAL:
        return any(KafkaError(code).str() in error.str() for code in codes)
    return error.code() in codes


def kafka_error(error: KafkaError | KafkaException) -> KafkaError:
    if isinstance(error, KafkaException):
        inner: KafkaError = error.args[0]
        return inner
    return error


def translate(error: KafkaError | KafkaException, doing: str) -> BrokerError:
    """One of our errors. `doing` is what was tried, as in `publish to orders`."""
    inner = kafka_error(error)
    if inner.code() == KafkaError._FATAL:
        inner = next((known for known in map(KafkaError, _MEANINGS) if known.str() in inner.str()), inner)
    meaning = _MEANINGS.get(inner.code(), _Meaning(Unavailable, "", detail=True))
    said = _shortened(inner.str())
    if not meaning.sentence:
        sentence = said
    elif meaning.detail and said:
        sentence = f"{meaning.sentence} ({said})"
    else:
        sentence = meaning.sentence
    return meaning.kind(f"Kafka: cannot {doing}: {sentence}")


def _shortened(said: str) -> str:
    """Without what is only for the authors of the library."""
    return said.partition(" (after ")[0].removeprefix("Broker: ").removeprefix("Local: ").rstrip(".")
