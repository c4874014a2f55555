"""What a query's progress says of how far it has come. Pure.

Spark posts a progress when a batch is done and its checkpoint has it. Each of our sources is in it with its offset, and
with what the reader reported beside: the token that proves its right to commit, and where. The reader itself lives in
another process, so this is how the driver's Python learns of both.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from spark_bridge.positions import Positions, from_offset


class Done(NamedTuple):
    """One source of a query has everything before these positions done, durably."""

    address: str
    subscription: str
    token: int
    positions: Positions
    #: lanes that lost something are passed over
    skips: bool = False


def done(sources: Iterable[Mapping[str, Any]]) -> list[Done]:
    """From the `sources` of a progress. Sources of other kinds are passed over."""
    out: list[Done] = []
    for source in sources:
        end, reported = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        if end is None or reported is None or not reported.get("token"):
            continue
        subscription = str(end["subscription"])
        positions, skips = from_offset(end, subscription), bool(reported.get("skips"))
        out.append(Done(reported["address"], subscription, reported["token"], positions, skips))
    return out


def _offset(text: object) -> dict[str, Any] | None:
    try:
        offset = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None
    return offset if isinstance(offset, dict) and {"v", "subscription", "lanes"} <= offset.keys() else None
