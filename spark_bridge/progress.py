"""What a query's progress says about our sources. Pure.

Spark posts a progress when a batch is done and in the checkpoint. It has the offset of each of our sources, and what
the stream reader reported: the token that proves its right to commit, and the sidecar's address. The reader lives in
another process, so this is how the driver's own process learns of them.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from spark_bridge.positions import Positions, from_offset


class SourceProgress(NamedTuple):
    """One source of a query has durably done everything before these positions."""

    address: str
    subscription: str
    token: int
    positions: Positions
    #: where the lanes ended
    ends: Positions
    #: failOnDataLoss is false: commits leave out lanes that lost something
    skip_missing: bool = False

    @property
    def lag(self) -> int:
        """Positions between what is done and the ends of the lanes."""
        return sum(max(0, end - self.positions.get(lane, end)) for lane, end in self.ends.items())


def source_progress(sources: Iterable[Mapping[str, Any]]) -> list[SourceProgress]:
    """From the `sources` of a progress. Skips sources that are not ours."""
    found: list[SourceProgress] = []
    for source in sources:
        end, reported = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        if end is None or reported is None or not reported.get("token"):
            continue
        subscription = str(end["subscription"])
        positions, ends = from_offset(end, subscription), from_offset(reported, subscription)
        skip_missing = bool(reported.get("skips"))
        found.append(
            SourceProgress(reported["address"], subscription, reported["token"], positions, ends, skip_missing)
        )
    return found


def _offset(text: object) -> dict[str, Any] | None:
    try:
        offset = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None
    return offset if isinstance(offset, dict) and {"v", "subscription", "lanes"} <= offset.keys() else None
