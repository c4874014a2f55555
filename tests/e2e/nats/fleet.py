"""Sidecars of one group of a NATS."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.load.audit import BrokerSnapshot
from tests.e2e.load.fleet import Fleet as AnyFleet
from tests.e2e.nats.snapshot import RETRY_LANES, left, take_snapshot
from tests.servers.nats import NatsServer


class Fleet(AnyFleet[BrokerSnapshot]):
    broker = "nats"

    def __init__(self, folder: Path, server: NatsServer, topic: str, lanes: int, **settings: Any) -> None:
        super().__init__(folder, topic, lanes, **settings)
        self._server = server

    def backlog(self) -> int:
        """Of the topic, and of what was parked."""
        topics = {self.topic: self.lanes, f"{self.group}.offramp.retry": RETRY_LANES}
        return left(self._server, self.group, topics)

    def _take_snapshot(self) -> BrokerSnapshot:
        return take_snapshot(self._server, self.group, self.topic, self.lanes)

    def _is_done(self) -> bool:
        return self.backlog() == 0

    def _what_is_left(self) -> str:
        return f"{self.backlog()} messages"

    def _broker_settings(self, name: str) -> Mapping[str, Any]:
        # The machine is busy, and the server's clock does not wait: what expires too early comes twice.
        return {"type": "nats", "url": self._server.url, "create_streams": True, "ack_wait": "5s", "timeout": "5s"}
