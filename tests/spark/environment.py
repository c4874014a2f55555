"""A sidecar with a topic that is read by ranges, over TCP as executors reach it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from offramp import Message, Publisher, connect
from tests.e2e.harness import Sidecar
from tests.security.kit import Secured, tcp_address
from tests.servers.kafka import KafkaServer
from tests.servers.process import free_ports

#: the subscription that is read by ranges, and its topic
CLICKS = "clicks"
#: the one that is leased
ORDERS = "orders"
LANES = 2


class SparkEnvironment:
    """A real `offramp run` with the embedded broker, restarted at will on the same port."""

    def __init__(self, folder: Path, *, topic: str = CLICKS, **settings: Any) -> None:
        folder.mkdir(exist_ok=True)
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self.folder = folder
        self.topic = topic
        given = {
            "brokers": {"local": {"type": "local", "directory": str(folder / "data"), "lanes": LANES}},
            "subscriptions": {
                CLICKS: {"topics": [CLICKS], "mode": "ranges"},
                "both": {"topics": [CLICKS, "later"], "mode": "ranges"},
                "other": {"topics": [CLICKS], "mode": "ranges"},
                ORDERS: {"topics": [ORDERS], "retry": {"attempts": 2, "first": "10ms", "max": "20ms"}},
            },
            **settings,
        }
        self.sidecar = Sidecar(folder, listen={"tcp": self.address}, **given)

    def publish(self, messages: Sequence[Message], topic: str = CLICKS) -> None:
        with Publisher(broker="local", address=self.address) as publisher:
            publisher.publish_many(topic, messages)

    def numbers(self, first: int, stop: int, topic: str = CLICKS) -> None:
        """Messages whose values are numbers, in turn on the lanes."""
        self.publish([Message(b"%d" % n, lane=n % LANES) for n in range(first, stop)], topic)

    def options(self, subscription: str = CLICKS, **more: str) -> dict[str, str]:
        """For a reader."""
        return {"address": self.address, "subscription": subscription, "timeout": "20s", **more}

    def committed(self, subscription: str = CLICKS) -> dict[str, int]:
        """What the broker was told, by lane."""
        return {f"{one.topic}/{one.lane}": one.committed for one in self.sidecar.status(subscription).lanes}

    def done(self, subscription: str = CLICKS) -> int:
        """The number of records if all are committed, otherwise 0."""
        lanes = self.sidecar.status(subscription).lanes
        return sum(lane.end for lane in lanes) if all(lane.committed == lane.end for lane in lanes) else 0


def reject_what_is_bad(subscription: str, address: str, *, records: int) -> None:
    """Settles so many records: the values `bad` become dead letters."""
    with connect(subscription, address=address) as consumer:
        while records:
            batch = next(consumer)
            records -= len(batch)
            for record in batch:
                if record.value == b"bad":
                    record.reject("it is bad")
            assert batch.ack().result(20).settled


def on_kafka(folder: Path, kafka: KafkaServer, topic: str) -> SparkEnvironment:
    """The same with a topic of a Kafka."""
    return SparkEnvironment(
        folder / "environment",
        topic=topic,
        brokers={"kafka": {"type": "kafka", "servers": [kafka.bootstrap]}},
        subscriptions={CLICKS: {"broker": "kafka", "topics": [topic], "group": f"{topic}-group", "mode": "ranges"}},
    )


def secured_options(secured: Secured, sidecar: Sidecar, subscription: str, **more: str) -> dict[str, str]:
    """For a reader from beyond loopback."""
    access = {"address": tcp_address(sidecar), "ca": str(secured.authority.certificate), "serverName": "localhost"}
    return {**access, "subscription": subscription, "timeout": "20s", **more}
