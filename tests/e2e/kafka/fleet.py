"""Sidecars of one group of a Kafka."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.kafka.snapshot import KafkaSnapshot, progress, take_snapshot
from tests.e2e.load.fleet import Fleet as AnyFleet
from tests.e2e.load.journal import Spot
from tests.servers.kafka import KafkaServer

#: lanes of the retry topic, unless told otherwise
RETRY_LANES = 8


class Fleet(AnyFleet[KafkaSnapshot]):
    broker = "kafka"

    def __init__(
        self, folder: Path, kafka: KafkaServer, topic: str, lanes: int, *, protocol: str = "auto", **settings: Any
    ) -> None:
        super().__init__(folder, topic, lanes, **settings)
        self._kafka = kafka
        self._protocol = protocol

    def acked(self) -> set[Spot]:
        """Until now, by anyone."""
        return self.read().acked

    def taken(self) -> set[Spot]:
        """Records that any worker has taken."""
        return self.read().taken

    def left(self) -> dict[int, int]:
        """The lag of the group in each lane."""
        snapshot = progress(self._kafka, self.group, self.topic, self.lanes)
        return {lane: end - snapshot.positions[lane] for lane, end in snapshot.ends.items()}

    def _take_snapshot(self) -> KafkaSnapshot:
        return take_snapshot(self._kafka, self.group, self.topic, self.lanes)

    def _is_done(self) -> bool:
        # The retry topic has a group of its own, which has its name.
        retry = f"{self.group}.offramp.retry"
        return (
            progress(self._kafka, self.group, self.topic, self.lanes).is_done
            and progress(self._kafka, retry, retry, RETRY_LANES).is_done
        )

    def _broker_settings(self, name: str) -> Mapping[str, Any]:
        properties = {"client.id": name}
        if self._protocol == "classic":
            properties |= {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
        told = {"servers": [self._kafka.bootstrap], "group_protocol": self._protocol, "properties": properties}
        return {"type": "kafka", **told}
