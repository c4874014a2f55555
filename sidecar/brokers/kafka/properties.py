"""What librdkafka is told: what Offramp needs, what it prefers, and what users pass through."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sidecar.brokers.kafka.options import GroupProtocol, KafkaOptions, Sasl
from sidecar.model.errors import Refused
from sidecar.model.version import VERSION

if TYPE_CHECKING:
    Properties = dict[str, str | int | bool]

#: what the trial of a poll costs is small; what a pause discards is fetched again: so the queue is short but never dry
_CONSUMER: Mapping[str, str | int | bool] = {
    "fetch.queue.backoff.ms": 1,
    "queued.min.messages": 20_000,
    # A lane that is resumed or sought waits for the fetch that is under way: a long one would hold it up.
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    "max.partition.fetch.bytes": 512 << 10,
    "topic.metadata.refresh.interval.ms": 30_000,
    # A broker that hangs is given up for another sooner than after a minute.
    "socket.timeout.ms": 20_000,
}
_PRODUCER: Mapping[str, str | int | bool] = {
    "linger.ms": 1,
    # One that cannot be written is told soon; whoever publishes decides whether to try again.
    "message.timeout.ms": 30_000,
    "topic.metadata.propagation.max.ms": 5_000,
    "sticky.partitioning.linger.ms": 0,
    # What is too large is for the broker to say.
    "message.max.bytes": 1_000_000_000,
}
#: bytes of values that may wait to be written. One that is larger would wait for ever for room
QUEUE = 64 << 20


def instance_of(options: KafkaOptions) -> str:
    """What tells this pod from others."""
    return options.instance or os.environ.get("HOSTNAME") or os.uname().nodename


def common(options: KafkaOptions) -> "Properties":
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
    if options.sasl is not Sasl.NONE:
        conf["sasl.mechanism"] = options.sasl.value.upper()
    if options.username:
        conf["sasl.username"] = options.username
    if options.password or options.password_file:
        conf["sasl.password"] = options.password or _content(options.password_file)
    if "security.protocol" not in conf:
        login = options.sasl is not Sasl.NONE
        conf["security.protocol"] = ("sasl_ssl" if login else "ssl") if options.tls else _plain(login)
    for name, value in (
        ("ssl.ca.location", options.tls_ca),
        ("ssl.certificate.location", options.tls_certificate),
        ("ssl.key.location", options.tls_key),
    ):
        if value:
            conf[name] = value
    return conf


def reading(options: KafkaOptions, group: str) -> "Properties":
    """For a consumer that joins no group: it asks for the positions of one, or reads lanes that it is given."""
    return {
        **_CONSUMER,
        **common(options),
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "queued.max.messages.kbytes": options.fetch_buffer // 1024,
        # One answer may come when the buffer is nearly full, so it counts, too.
        "fetch.max.bytes": max(1 << 20, options.fetch_buffer // 4),
        "allow.auto.create.topics": False,
        **({"client.rack": options.rack} if options.rack else {}),
    }


def member(options: KafkaOptions, group: str, protocol: GroupProtocol) -> "Properties":
    """For a member of a group."""
    conf = {**reading(options, group), "group.protocol": protocol.value, "statistics.interval.ms": 10_000}
    if protocol is GroupProtocol.CLASSIC:
        conf["partition.assignment.strategy"] = "cooperative-sticky"
    if options.group_instance_id:
        conf["group.instance.id"] = options.group_instance_id
    return conf


def producing(options: KafkaOptions) -> "Properties":
    return {
        **_PRODUCER,
        **common(options),
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "queue.buffering.max.kbytes": QUEUE // 1024,
        "allow.auto.create.topics": False,
    }


def max_poll_interval(options: KafkaOptions) -> float:
    """Seconds."""
    return int(options.properties.get("max.poll.interval.ms", 300_000)) / 1000


def _plain(login: bool) -> str:
    return "sasl_plaintext" if login else "plaintext"


def _content(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Refused(f"{path} cannot be read: {reason}.") from error
