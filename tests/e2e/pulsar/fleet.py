"""Sidecars of one group of a Pulsar."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.load.audit import BrokerSnapshot
from tests.e2e.load.fleet import Fleet as AnyFleet
from tests.e2e.pulsar.snapshot import take_snapshot
from tests.servers.pulsar import PulsarServer


class Fleet(AnyFleet[BrokerSnapshot]):
    broker = "pulsar"

    def __init__(self, folder: Path, server: PulsarServer, topic: str, lanes: int, kind: str, **settings: Any) -> None:
        super().__init__(folder, topic, lanes, **settings)
        self._server = server
        self._kind = kind

    def backlog(self) -> int:
        """Of the topic, and of what was parked."""
        topics = (self.topic, f"{self.group}.offramp.retry")
        return sum(self._server.backlog(topic, self.group) for topic in topics)

    def _take_snapshot(self) -> BrokerSnapshot:
        return take_snapshot(self._server, self.group, self.topic, self.lanes)

    def _is_done(self) -> bool:
        return self.backlog() == 0

    def _what_is_left(self) -> str:
        return json.dumps(self._server.stats(self.topic)["partitions"], indent=1)

    def _broker_settings(self, name: str) -> Mapping[str, Any]:
        return {
            "type": "pulsar",
            "url": self._server.url,
            "admin_url": self._server.admin_url,
            "subscription_type": self._kind,
            # Little, so that every sidecar has something.
            "receiver_queue": 50,
        }
