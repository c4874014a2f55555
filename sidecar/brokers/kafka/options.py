"""The settings of a broker of type `kafka`, their validation, and the properties of librdkafka that they result in."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from confluent_kafka import KafkaException, Producer

from sidecar.brokers.base import BrokerOptions, Traits, is_pattern
from sidecar.brokers.kafka.forgotten_brokers import STATISTICS_INTERVAL
from sidecar.model.addresses import split_address
from sidecar.model.errors import ConfigError, Refused
from sidecar.model.version import VERSION
from sidecar.settings import Bytes, Seconds, setting

if TYPE_CHECKING:
    from sidecar.settings import SubscriptionSettings

#: the configuration of a client of librdkafka
Properties = dict[str, str | int | bool]


class GroupProtocol(StrEnum):
    """How the lanes of a group are assigned to its members."""

    #: `consumer` where the broker supports it, `classic` otherwise
    AUTO = "auto"
    #: the broker assigns them (KIP-848)
    CONSUMER = "consumer"
    #: the members assign them among themselves, cooperatively
    CLASSIC = "classic"


class OutOfRange(StrEnum):
    """Where a lane continues if its position no longer exists."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Sasl(StrEnum):
    NONE = "none"
    PLAIN = "plain"
    SCRAM_SHA_256 = "scram-sha-256"
    SCRAM_SHA_512 = "scram-sha-512"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions(BrokerOptions):
    """Apache Kafka, tested with 4.3. See docs/brokers/kafka.md."""

    traits: ClassVar[Traits] = Traits(
        keeps_acks_beyond=True,
        keeps_reach=True,
        rebalances=True,
        lanes_are_exclusive=True,
        seeks=True,
        reads_ranges=True,
        creates_topics=True,
        matches_patterns=True,
        finds_left_topics=True,
    )

    servers: tuple[str, ...] = setting("Bootstrap servers, as host:port.", at_least=1, example=("kafka:9092",))
    tls: bool = setting("Connect with TLS.", False)
    tls_ca: str = setting("File with the CA certificates to trust. Empty: those of the system.", "")
    tls_certificate: str = setting("File with the client certificate, where the broker asks for one.", "")
    tls_key: str = setting("File with the private key of the client certificate.", "")
    sasl: Sasl = setting("SASL mechanism. Other mechanisms can be set by `properties`.", Sasl.NONE)
    username: str = setting("SASL user name.", "")
    password: str = setting("SASL password; better from a variable or `password_file`.", "", secret=True)
    password_file: str = setting("File that holds the SASL password. Restart the sidecar when it changes.", "")
    group_protocol: GroupProtocol = setting(
        "How the lanes of a group are assigned. `auto`: `consumer` (KIP-848) where the broker supports it, `classic` "
        "otherwise.",
        GroupProtocol.AUTO,
    )
    group_instance_id: str = setting(
        "Static membership: a name that survives a restart, so that the lanes wait for the pod. Set it only where no "
        "two pods can have the same name: in a StatefulSet, ${HOSTNAME}.",
        "",
    )
    rack: str = setting("The rack or zone of this pod (`client.rack`), to read from a replica nearby.", "")
    broadcast: bool = setting(
        "Every pod gets every record: each has a group of its own, named after the group and `instance`.", False
    )
    instance: str = setting("Name of this pod in a broadcast. Empty: the host name.", "")
    grace: Seconds = setting(
        "How long records of a revoked lane may still be settled; at most a tenth of `max.poll.interval.ms`.",
        Seconds(3.0),
        at_least=0.0,
        at_most=30.0,
    )
    out_of_range: OutOfRange = setting(
        "Where a lane continues if retention removed its position, or if the position is beyond the end of the lane.",
        OutOfRange.EARLIEST,
    )
    fetch_buffer: Bytes = setting(
        "Memory of the Kafka library for fetched records of each subscription, in addition to `memory.bytes`.",
        Bytes(16 << 20),
        at_least=1 << 20,
        at_most=1 << 30,
    )
    create_topics: bool = setting(
        "Create missing topics that are consumed or published to. Retry and dead-letter topics are always created.",
        False,
    )
    replication_factor: int = setting(
        "Replicas of topics that Offramp creates. -1: the broker's default.", -1, at_least=-1, at_most=100
    )
    topic_config: Mapping[str, str] = setting(
        "Configuration of topics that Offramp creates, such as `retention.ms`.", {}
    )
    properties: Mapping[str, str] = setting(
        "Properties of librdkafka, by their names there. Those that Offramp itself sets are refused.", {}
    )
    property_files: Mapping[str, str] = setting(
        "Properties of librdkafka whose values are read from files, such as `ssl.key.password: /run/secrets/key`.",
        {},
    )

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ConfigError(problem)

    def problems_with(self, subscription: "SubscriptionSettings") -> Iterator[tuple[str, str]]:
        if self.broadcast and subscription.mode == "ranges":
            yield "mode", '"ranges" has one reader, but the broker is a broadcast, where every pod has its own group'
        for pattern in filter(is_pattern, subscription.topics):
            try:
                matches = re.compile(pattern).match
            except re.error as error:
                yield "topics", f'"{pattern}" is not a pattern: {error}'
                continue
            for key, topic in (
                ("parking.topic", subscription.retry_topic),
                ("dead_letter.topic", subscription.dead_letter_topic),
            ):
                if matches(topic):
                    why = f"the {key} of the group: records that failed would be consumed again"
                    yield "topics", f'"{pattern}" matches "{topic}", {why}'

    @property
    def instance_name(self) -> str:
        """The name of this pod in a broadcast."""
        return self.instance or os.environ.get("HOSTNAME") or os.uname().nodename

    @property
    def max_poll_interval(self) -> float:
        """Seconds."""
        return int(self.properties.get("max.poll.interval.ms", 300_000)) / 1000


# Validation.

_COMMITS = "Offramp commits only what was settled"
#: properties that users may not set, and why
OWNED: Mapping[str, str] = {
    "bootstrap.servers": "set `servers` instead",
    "metadata.broker.list": "set `servers` instead",
    "client.rack": "set `rack` instead",
    "sasl.username": "set `username` instead",
    "sasl.password": "set `password` or `password_file` instead",
    "group.id": "it is the `group` of the subscription",
    "group.instance.id": "set `group_instance_id` instead",
    "group.protocol": "set `group_protocol` instead",
    "partition.assignment.strategy": "lanes must move one by one, so it is always cooperative-sticky",
    "enable.auto.commit": _COMMITS,
    "auto.commit.enable": _COMMITS,
    "auto.commit.interval.ms": _COMMITS,
    "enable.auto.offset.store": _COMMITS,
    "offset.store.method": _COMMITS,
    "auto.offset.reset": "set `start` of the subscription, and `out_of_range`, instead",
    "isolation.level": "records of open and aborted transactions must not be delivered, so it is always read_committed",
    "enable.partition.eof": "Offramp needs it on to see gaps at the end of a lane",
    "queued.max.messages.kbytes": "set `fetch_buffer` instead",
    "fetch.max.bytes": "set `fetch_buffer` instead",
    "statistics.interval.ms": "Offramp reads its own metrics from it",
    "allow.auto.create.topics": "set `create_topics` instead",
    "enable.idempotence": "a retry must not write a record twice, so it is always on",
    "acks": "an acknowledged record must be safe on every replica in sync, so it is always all",
    "request.required.acks": "an acknowledged record must be safe on every replica in sync, so it is always all",
    "transactional.id": "Offramp writes without transactions",
    "partitioner": "a key must go to the partition where Kafka's Java clients send it, so it is always murmur2_random",
    "queue.buffering.max.kbytes": "it bounds the memory for messages that wait to be written, so it is always 65536",
    "log.queue": "Offramp writes the library's log lines to its own log",
    "log_level": "Offramp writes the library's log lines to its own log",
    "plugin.library.paths": "a configuration must not load code",
}

_NAME = re.compile(r"[a-z][a-z0-9._]*")
#: suffixes of properties whose values librdkafka reads only as far as they are digits: it takes "10m" for 10 ms
_WHOLE_NUMBERS = (".ms", "bytes", ".messages")
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")
_SCHEME = re.compile(r"(plaintext|ssl|sasl_plaintext|sasl_ssl)://", re.IGNORECASE)
#: not a property of librdkafka
_NO_PROPERTY = "offramp.end"


def _problems(options: KafkaOptions) -> Iterator[str]:
    """What is wrong with the options, each alone and together: a sentence each."""
    for server in ",".join(options.servers).split(","):
        if not _is_server(server.strip()):
            yield f'servers: "{server}" is not host:port'
    for key in ("properties", "property_files"):
        for name in getattr(options, key):
            if name in OWNED:
                yield f'{key}: "{name}" is not for users to set: {OWNED[name]}'
            elif not _NAME.fullmatch(name):
                yield f'{key}: "{name}" is not the name of a property of librdkafka, such as socket.timeout.ms'
    for name, value in options.properties.items():
        if text := _wrong_with(name, value):
            yield f'properties: "{name}": {text}'
    for name in options.properties.keys() & options.property_files.keys():
        yield f'property_files: "{name}" is also set by properties'
    if options.sasl != "none":
        if not options.username:
            yield "username: is empty, but sasl needs one"
        if bool(options.password) is bool(options.password_file):
            yield "password: sasl needs exactly one of password and password_file"
    elif (options.username or options.password or options.password_file) and not (
        options.properties.keys() & {"sasl.mechanism", "sasl.mechanisms"}
    ):
        yield "sasl: is none, but a username or a password is set"
    if not options.tls and (options.tls_ca or options.tls_certificate or options.tls_key):
        yield "tls: is off, but certificates are set"
    if bool(options.tls_certificate) is not bool(options.tls_key):
        yield "tls_key: tls_certificate and tls_key must be set together"


def _is_server(text: str) -> bool:
    """Without a port, Kafka's default is meant."""
    text = _SCHEME.sub("", text, count=1)
    return split_address(text if text.rpartition("]")[2].count(":") else f"{text}:9092") is not None and "/" not in text


def _wrong_with(name: str, value: str) -> str | None:
    """Why librdkafka refuses a property. Never creates a client, since the property after it is always refused."""
    if name.endswith(_WHOLE_NUMBERS) and not _WHOLE_NUMBER.fullmatch(value):
        return f'"{value}" is not a whole number'
    try:
        Producer({name: value, _NO_PROPERTY: ""})
    except KafkaException as error:
        text = str(error.args[0].str()).strip()
    except (AttributeError, TypeError, ValueError) as error:
        text = str(error)
    return None if _NO_PROPERTY in text else text


# Properties of librdkafka. Users may override the first two tables.

_CONSUMER: Mapping[str, str | int | bool] = {
    # Checking the queue costs little, and what a pause discards is fetched again: keep the queue short but never empty.
    "fetch.queue.backoff.ms": 1,
    "queued.min.messages": 20_000,
    # A lane that is resumed or sought waits for the fetch in flight, so a fetch must be short.
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    "max.partition.fetch.bytes": 512 << 10,
    "topic.metadata.refresh.interval.ms": 30_000,
    # Try another broker sooner than the library's default of a minute when one hangs.
    "socket.timeout.ms": 20_000,
}
_PRODUCER: Mapping[str, str | int | bool] = {
    "linger.ms": 1,
    # Report soon that a message cannot be written; the caller decides whether to try again.
    "message.timeout.ms": 30_000,
    "topic.metadata.propagation.max.ms": 5_000,
    "sticky.partitioning.linger.ms": 0,
    # The broker decides what is too large.
    "message.max.bytes": 1_000_000_000,
}
#: bytes of values that may wait to be written. A larger value would wait for room forever
PRODUCER_QUEUE_BYTES = 64 << 20


def common_properties(options: KafkaOptions) -> Properties:
    """For every client. Raises `Refused` for a file that cannot be read."""
    conf: Properties = {
        "bootstrap.servers": ",".join(options.servers),
        "client.id": "offramp",
        "client.software.name": "offramp",
        "client.software.version": VERSION,
        "reconnect.backoff.max.ms": 5_000,
        "socket.keepalive.enable": True,
        **options.properties,
    }
    for name, path in options.property_files.items():
        conf[name] = _content(path)
    login = options.sasl is not Sasl.NONE
    if login:
        conf["sasl.mechanism"] = options.sasl.value.upper()
    if options.username:
        conf["sasl.username"] = options.username
    if options.password or options.password_file:
        conf["sasl.password"] = options.password or _content(options.password_file)
    if "security.protocol" not in conf:
        protocol = "ssl" if options.tls else "plaintext"
        conf["security.protocol"] = f"sasl_{protocol}" if login else protocol
    for name, value in (
        ("ssl.ca.location", options.tls_ca),
        ("ssl.certificate.location", options.tls_certificate),
        ("ssl.key.location", options.tls_key),
    ):
        if value:
            conf[name] = value
    return conf


def admin_properties(options: KafkaOptions) -> Properties:
    return {**common_properties(options), "statistics.interval.ms": STATISTICS_INTERVAL}


def consumer_properties(options: KafkaOptions, group: str) -> Properties:
    """For a consumer that does not join a group: it reads lanes that it is given, or the positions of the group."""
    return {
        **_CONSUMER,
        **common_properties(options),
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "queued.max.messages.kbytes": options.fetch_buffer // 1024,
        # A response may arrive when the buffer is nearly full, so its size counts, too.
        "fetch.max.bytes": max(1 << 20, options.fetch_buffer // 4),
        "allow.auto.create.topics": False,
        **({"client.rack": options.rack} if options.rack else {}),
    }


def fetcher_properties(options: KafkaOptions, group: str) -> Properties:
    """For a consumer that reads lanes for a member of a group."""
    return {**consumer_properties(options, group), "statistics.interval.ms": STATISTICS_INTERVAL}


def member_properties(options: KafkaOptions, group: str, protocol: GroupProtocol) -> Properties:
    """For a member of a group, which fetches nothing."""
    conf = {
        **consumer_properties(options, group),
        "group.protocol": protocol.value,
        "statistics.interval.ms": STATISTICS_INTERVAL,
    }
    if protocol is GroupProtocol.CLASSIC:
        conf["partition.assignment.strategy"] = "cooperative-sticky"
    if options.group_instance_id:
        conf["group.instance.id"] = options.group_instance_id
    return conf


def producer_properties(options: KafkaOptions) -> Properties:
    return {
        **_PRODUCER,
        **common_properties(options),
        "enable.idempotence": True,
        "acks": "all",
        "statistics.interval.ms": STATISTICS_INTERVAL,
        "partitioner": "murmur2_random",
        "queue.buffering.max.kbytes": PRODUCER_QUEUE_BYTES // 1024,
        "allow.auto.create.topics": False,
    }


def _content(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Refused(f"{path} cannot be read: {reason}.") from error
