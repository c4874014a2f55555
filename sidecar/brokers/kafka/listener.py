"""What the poll thread tells."""

from typing import Protocol

from confluent_kafka import KafkaError

from sidecar.brokers.kafka.consumer.commits import Request
from sidecar.brokers.kafka.lanes import Reading


class UnknownProtocol(Exception):
    """The broker does not speak the group protocol that was tried."""


class Listener(Protocol):
    """Called on the poll thread; must not wait."""

    def arrived(self, readings: list[Reading]) -> None:
        """Lanes were assigned; `Member.begin` is to be called when it is known where they start."""

    def strayed(self, reading: Reading) -> None:
        """The position of a lane is not there any more; `Member.restart` is to be called."""

    def watch(self, request: Request) -> None:
        """A commit was sent whose answer will not come soon; `Member.confirm` is to be called if Kafka has it."""

    def failed(self, error: KafkaError, topic: str | None) -> None:
        """A topic, or if there is none the group or the connection, does not work."""

    def ended(self, error: BaseException | None) -> None:
        """The thread is over. A `KafkaException` is one that another member may not meet."""
