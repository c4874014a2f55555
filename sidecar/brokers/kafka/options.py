"""What can be set for a broker of type `kafka`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from sidecar.brokers.base import BrokerOptions, Traits
from sidecar.brokers.kafka import checks
from sidecar.model.errors import ConfigError
from sidecar.settings import Bytes, Seconds, setting

if TYPE_CHECKING:
    from sidecar.settings import SubscriptionSettings


class GroupProtocol(StrEnum):
    """How the members of a group agree on who has which lane."""

    #: `consumer` where the broker has it, `classic` otherwise
    AUTO = "auto"
    #: the broker shares out (KIP-848)
    CONSUMER = "consumer"
    #: the members share out among themselves, cooperatively
    CLASSIC = "classic"


class OutOfRange(StrEnum):
    """Where a lane goes on whose position is not there any more."""

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
        rebalances=True,
        lanes_are_exclusive=True,
        seeks=True,
        reads_ranges=True,
        creates_topics=True,
        matches_patterns=True,
    )

    servers: tuple[str, ...] = setting("Brokers to begin with, as host:port.", at_least=1, example=("kafka:9092",))
    tls: bool = setting("Speak TLS.", False)
    tls_ca: str = setting("A file with the certificates to trust. Empty: those of the system.", "")
    tls_certificate: str = setting("A file with the certificate to show, where the broker asks for one.", "")
    tls_key: str = setting("A file with its private key.", "")
    sasl: Sasl = setting("How to log in. Others can be set by `properties`.", Sasl.NONE)
    username: str = setting("Who logs in.", "")
    password: str = setting("Its password; better by a variable, or by `password_file`.", "", secret=True)
    password_file: str = setting("A file that holds the password. Restart the sidecar when it changes.", "")
    group_protocol: GroupProtocol = setting(
        "How a group shares out its lanes. `auto`: `consumer` (KIP-848) where the broker has it, `classic` otherwise.",
        GroupProtocol.AUTO,
    )
    group_instance_id: str = setting(
        "A name that stays the same over a restart, so that the lanes wait for it. Only where no two pods can have the "
        "same: in a StatefulSet, ${HOSTNAME}.",
        "",
    )
    rack: str = setting("Where this pod is, as the brokers call it, to read from a replica nearby.", "")
    broadcast: bool = setting(
        "Every pod gets every record: each has a group of its own, named after the group and `instance`.", False
    )
    instance: str = setting("What tells this pod from the others of a broadcast. Empty: the name of the host.", "")
    grace: Seconds = setting(
        "How long records of a lane that moves may still be settled: a tenth of `max.poll.interval.ms` at the most.",
        Seconds(3.0),
        at_least=0.0,
        at_most=30.0,
    )
    out_of_range: OutOfRange = setting(
        "Where a lane goes on whose position was removed by retention, or is beyond its end.", OutOfRange.EARLIEST
    )
    fetch_buffer: Bytes = setting(
        "What the Kafka library may hold of each subscription, besides `memory.bytes`.",
        Bytes(16 << 20),
        at_least=1 << 20,
        at_most=1 << 30,
    )
    create_topics: bool = setting(
        "Make topics that are consumed or published to and are missing. Retry and dead-letter topics always are.", False
    )
    replication_factor: int = setting(
        "Replicas of topics that Offramp makes. -1: what the broker has for its default.", -1, at_least=-1, at_most=100
    )
    topic_config: Mapping[str, str] = setting("Settings of topics that Offramp makes, such as `retention.ms`.", {})
    properties: Mapping[str, str] = setting(
        "Properties of librdkafka, by their names there. Those that Offramp itself needs are refused.", {}
    )
    property_files: Mapping[str, str] = setting(
        "Properties whose values are in files, such as `ssl.key.password: /run/secrets/key`.", {}
    )

    def __post_init__(self) -> None:
        for problem in checks.problems(self):
            raise ConfigError(problem)

    def problems_with(self, subscription: "SubscriptionSettings") -> Iterator[tuple[str, str]]:
        return checks.problems_with(self, subscription)
