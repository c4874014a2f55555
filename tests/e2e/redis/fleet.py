"""Sidecars of one group of a Redis."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.load.audit import BrokerSnapshot
from tests.e2e.load.fleet import Fleet as AnyFleet
from tests.e2e.redis.snapshot import left, take_snapshot
from tests.servers.redis import RedisServer


class Fleet(AnyFleet[BrokerSnapshot]):
    broker = "redis"

    def __init__(self, folder: Path, server: RedisServer, topic: str, lanes: int, **settings: Any) -> None:
        super().__init__(folder, topic, lanes, **settings)
        self._server = server

    def backlog(self) -> int:
        """Of the topic, and of what was parked."""
        topics = ((self.topic, self.lanes), (f"{self.group}.offramp.retry", 8))
        return sum(left(self._server, topic, self.group, lanes) for topic, lanes in topics)

    def _take_snapshot(self) -> BrokerSnapshot:
        return take_snapshot(self._server, self.group, self.topic, self.lanes)

    def _is_done(self) -> bool:
        return self.backlog() == 0

    def _what_is_left(self) -> str:
        return f"{self.backlog()} entries"

    def _broker_settings(self, name: str) -> Mapping[str, Any]:
        # The machine is busy, and the server's clock does not wait: what is claimed too early comes twice.
        return {"type": "redis", "url": self._server.url, "consumer": name, "claim_idle": "5s", "timeout": "5s"}
