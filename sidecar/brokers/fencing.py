"""Who may commit for a group that is read by ranges, as a text for brokers that store texts beside a position. Pure.

    offramp-ranges:1:<token>:<attached at, ms>:<pinned or unpinned>:<name of the reader>

Every position of the group carries it, and the newest token counts. A group that has no position yet has to carry it
somewhere: then one lane gets an *unpinned* entry, at the start of the lane, which does not count as a position. A
reader of leases takes the text for none of its own, and the position for what it is.
"""

from collections.abc import Iterable
from typing import NamedTuple

from sidecar.brokers.cursor import Attached
from sidecar.brokers.fencing_tokens import is_token

_PREFIX = "offramp-ranges:1:"
_PINNED, _UNPINNED = "pinned", "unpinned"


class Fence(NamedTuple):
    attached: Attached
    pinned: bool


def encode(fence: Fence) -> str:
    token, reader, since_ms = fence.attached
    return f"{_PREFIX}{token}:{since_ms}:{_PINNED if fence.pinned else _UNPINNED}:{reader}"


def decode(text: str) -> Fence | None:
    """None for what somebody else has written: the position beside it counts, like one that a tool has set."""
    if not text.startswith(_PREFIX):
        return None
    try:
        token, since_ms, pinned, reader = text[len(_PREFIX) :].split(":", 3)
        fence = Fence(Attached(int(token), reader, int(since_ms)), {_PINNED: True, _UNPINNED: False}[pinned])
    except (ValueError, KeyError):
        return None
    return fence if is_token(fence.attached.token) else None


def newest(fences: Iterable[Fence | None]) -> Attached | None:
    found = [fence.attached for fence in fences if fence is not None]
    return max(found, default=None)
