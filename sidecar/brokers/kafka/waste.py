"""What is fetched in vain. A pause throws away what the library has fetched of the lane."""

import json
from collections.abc import Mapping
from typing import Any

from sidecar.model.records import Lane


class Waste:
    """Compares what the library says it has received with what was taken from it."""

    def __init__(self) -> None:
        #: messages that were taken, by lane
        self._taken: dict[Lane, int] = {}
        #: the latest figure
        self.bytes = 0

    def took(self, lane: Lane, messages: int) -> None:
        """So many were of use; fewer than none: they were not after all."""
        self._taken[lane] = self._taken.get(lane, 0) + messages

    def report(self, text: str) -> None:
        """The library's statistics: what it has received since it started, and what waits to be taken."""
        wasted = 0.0
        for name, topic in json.loads(text)["topics"].items():
            for number, figures in topic["partitions"].items():
                wasted += self._wasted(Lane(name, int(number)), figures)
        self.bytes = max(self.bytes, int(wasted))

    def _wasted(self, lane: Lane, figures: Mapping[str, Any]) -> float:
        received = figures["rxmsgs"]
        if not received:
            return 0.0
        lost: int = received - figures["fetchq_cnt"] - self._taken.get(lane, 0)
        each: float = figures["rxbytes"] / received
        return max(0, lost) * each
