"""The brokers of a round.

base                         what a round needs of a broker
local, kafka, pulsar, redis  each of them
kafka_log                    the format of Kafka's own log: commits, and who has which lane
side_topics                  dead letters and parked records, by their headers

A `Broker` serves many rounds, one after the other; a `RoundTopic` is what one round has of it: a topic and a group of
its own, which plain clients read. No code of the sidecar is used to read them.
"""

from pathlib import Path

from tests.chaos.brokers.base import Broker, RoundTopic
from tests.chaos.brokers.kafka import KafkaBroker
from tests.chaos.brokers.local import LocalBroker
from tests.chaos.brokers.pulsar import PulsarBroker
from tests.chaos.brokers.redis import RedisBroker
from tests.chaos.plan import BrokerKind

__all__ = ["Broker", "RoundTopic", "open_broker"]

_BROKERS: dict[BrokerKind, type[Broker]] = {
    BrokerKind.LOCAL: LocalBroker,
    BrokerKind.KAFKA: KafkaBroker,
    BrokerKind.PULSAR: PulsarBroker,
    BrokerKind.REDIS: RedisBroker,
}


def open_broker(kind: BrokerKind, folder: Path) -> Broker:
    """Starts the broker. Raises `Missing`."""
    return _BROKERS[kind](folder)
