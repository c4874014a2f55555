"""What users may not set, and what options must be to each other."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer

from sidecar.model.addresses import split_address

if TYPE_CHECKING:
    from sidecar.brokers.kafka.options import KafkaOptions
    from sidecar.settings import SubscriptionSettings

_COMMITS = "Offramp commits what was settled, and nothing else"
#: what users may not set, and why
OWNED: Mapping[str, str] = {
    "bootstrap.servers": "write `servers` instead",
    "metadata.broker.list": "write `servers` instead",
    "client.rack": "write `rack` instead",
    "sasl.username": "write `username` instead",
    "sasl.password": "write `password` or `password_file` instead",
    "group.id": "it is the `group` of the subscription",
    "group.instance.id": "write `group_instance_id` instead",
    "group.protocol": "write `group_protocol` instead",
    "partition.assignment.strategy": "lanes must move one by one, so it is always cooperative-sticky",
    "enable.auto.commit": _COMMITS,
    "auto.commit.enable": _COMMITS,
    "auto.commit.interval.ms": _COMMITS,
    "enable.auto.offset.store": _COMMITS,
    "offset.store.method": _COMMITS,
    "auto.offset.reset": "write `start` of the subscription, and `out_of_range`, instead",
    "isolation.level": "records of open and aborted transactions must not be delivered, so it is always read_committed",
    "enable.partition.eof": "Offramp needs it on to see gaps at the end of a lane",
    "queued.max.messages.kbytes": "write `fetch_buffer` instead",
    "fetch.max.bytes": "write `fetch_buffer` instead",
    "statistics.interval.ms": "Offramp takes its own figures from it",
    "allow.auto.create.topics": "write `create_topics` instead",
    "enable.idempotence": "a record must not be written twice by a retry, so it is always on",
    "acks": "an answer means that the record is safe, so it is always all",
    "request.required.acks": "an answer means that the record is safe, so it is always all",
    "transactional.id": "Offramp writes without transactions",
    "partitioner": "a key must go where Kafka's own clients send it, so it is always murmur2_random",
    "queue.buffering.max.kbytes": "what may wait to be written is Offramp's memory, so it is always 65536",
    "log.queue": "Offramp takes the library's log lines into its own",
    "log_level": "Offramp takes the library's log lines into its own",
    "plugin.library.paths": "code is not loaded by a configuration",
}
_NAME = re.compile(r"[a-z][a-z0-9._]*")
#: of these librdkafka takes the digits that a value begins with, and "10m" for 10 ms
_WHOLE_NUMBERS = (".ms", "bytes", ".messages")
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")
_SCHEME = re.compile(r"(plaintext|ssl|sasl_plaintext|sasl_ssl)://", re.IGNORECASE)
#: no property of librdkafka
_END = "offramp.end"


def problems(options: "KafkaOptions") -> Iterator[str]:
    """What is wrong with the options, by themselves and together, a sentence each."""
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
        yield f'property_files: "{name}" is among properties, too'
    if options.sasl != "none":
        if not options.username:
            yield "username: is empty, and sasl needs one"
        if bool(options.password) is bool(options.password_file):
            yield "password: sasl needs exactly one of password and password_file"
    elif (options.username or options.password or options.password_file) and not (
        options.properties.keys() & {"sasl.mechanism", "sasl.mechanisms"}
    ):
        yield "sasl: is none, and yet there is a username or a password"
    if not options.tls and (options.tls_ca or options.tls_certificate or options.tls_key):
        yield "tls: is off, and yet there are certificates"
    if bool(options.tls_certificate) is not bool(options.tls_key):
        yield "tls_key: a certificate and its key go together"


def _is_server(text: str) -> bool:
    """Kafka's own port is meant where there is none."""
    text = _SCHEME.sub("", text, count=1)
    return split_address(text if text.rpartition("]")[2].count(":") else f"{text}:9092") is not None and "/" not in text


def _wrong_with(name: str, value: str) -> str | None:
    """What librdkafka has against a property. No client is made of it: what comes after it is always refused."""
    if name.endswith(_WHOLE_NUMBERS) and not _WHOLE_NUMBER.fullmatch(value):
        return f'"{value}" is not a whole number'
    try:
        Producer({name: value, _END: ""})
    except KafkaException as error:
        text = str(error.args[0].str()).strip()
    except (AttributeError, TypeError, ValueError) as error:
        text = str(error)
    return None if _END in text else text


def problems_with(options: "KafkaOptions", subscription: "SubscriptionSettings") -> Iterator[tuple[str, str]]:
    """A key of the subscription, and why it cannot be had."""
    if options.broadcast and subscription.mode == "ranges":
        yield "mode", '"ranges" has one reader, and the broker is a broadcast, where every pod has a group of its own'
    for pattern in subscription.topics:
        if not pattern.startswith("^"):
            continue
        try:
            fits = re.compile(pattern).match
        except re.error as error:
            yield "topics", f'"{pattern}" is not a pattern: {error}'
            continue
        for key, topic in (
            ("parking.topic", subscription.retry_topic),
            ("dead_letter.topic", subscription.dead_letter_topic),
        ):
            if fits(topic):
                yield (
                    "topics",
                    f'"{pattern}" fits "{topic}", the {key} of the group: what failed would come round again',
                )
