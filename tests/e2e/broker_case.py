"""A sidecar with some broker configuration, and the trouble that it reports when that does not work."""

from pathlib import Path
from typing import Any, Self

import grpc

from tests.e2e.harness import Sidecar, eventually


class BrokerCase:
    """A sidecar of one topic, with a folder of its own."""

    #: what a line for people must not contain
    jargon = "Error"

    def __init__(self, folder: Path, topic: str, broker: dict[str, Any]) -> None:
        self.topic = topic
        self.group = topic.rpartition("/")[2]
        subscription = {"broker": "it", "topics": [topic], "group": self.group}
        (folder / self.group).mkdir()
        self.sidecar = Sidecar(folder / self.group, subscriptions={"orders": subscription}, brokers={"it": broker})

    def start(self) -> Self:
        """It answers, whatever the broker does."""
        self.sidecar.launch()
        eventually(self._answers, "the sidecar answers")
        return self

    def _answers(self) -> bool:
        try:
            self.sidecar.status()
        except grpc.RpcError:
            return False
        return True

    def troubles(self) -> list[str]:
        return [*self.sidecar.status().trouble]

    def trouble(self, *words: str) -> None:
        """Waits for a line of the status, and of the log, that has these words."""

        def told() -> str:
            return next((line for line in self.troubles() if all(word in line for word in words)), "")

        line = eventually(told, f"the status says {words}; it says {self.troubles()}", 120.0)
        eventually(
            lambda: any(all(word in str(event) for word in words) for event in self.sidecar.events()),
            f"the log says {words}",
        )
        assert self.jargon not in line, line
        assert "Traceback" not in self.sidecar.log
