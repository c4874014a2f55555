"""Parked messages that arrive long before they are due: who holds them until then. Pure.

Where the broker lets a message be held for as long as it is renewed, the core holds it, like any other record. Where it
does not, the message must be back at the broker well before: by the broker's own delay, or else it is kept here for a
while, and is then written anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Generic

from sidecar.brokers.queue.driver import H, Received

#: seconds before it is due at which a message goes to the core
SOON = 30.0
#: the share of the time for which a message may be held after which it is written anew
_SHARE = 0.5
#: what is kept at most; more waits at the broker
_MOST_RECORDS, _MOST_BYTES = 1_000, 1 << 20


class Wait(Enum):
    """What to do with a message that is not due."""

    #: the core holds it
    DELIVER = "deliver"
    #: the broker holds it: it is given back with a delay
    GIVE_BACK = "give back"
    #: the broker holds a copy of it that is published with a delay
    PUBLISH = "publish"
    #: it is kept here, and published anew before the broker takes it away
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Waits:
    """How a broker lets parked messages wait."""

    #: seconds for which a message may be held
    hold: float
    #: seconds by which the broker delays what is given back, or published
    return_delay: float
    publish_delay: float

    def choose(self, wait: float) -> Wait:
        """What to do with a message that is due in so many seconds."""
        if wait <= min(SOON, self.hold * _SHARE) or self.hold == inf:
            return Wait.DELIVER
        if self.return_delay > 0:
            return Wait.GIVE_BACK
        return Wait.PUBLISH if self.publish_delay > 0 else Wait.KEEP


@dataclass(frozen=True, slots=True)
class Kept(Generic[H]):
    message: Received[H]
    due: float
    #: when it is to be written anew
    until: float


class Shelf(Generic[H]):
    """What is kept here, of one lane."""

    def __init__(self, hold: float) -> None:
        self._hold = hold
        self._kept: list[Kept[H]] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def full(self) -> bool:
        return len(self._kept) >= _MOST_RECORDS or self._bytes >= _MOST_BYTES

    def add(self, message: Received[H], wait: float, now: float) -> None:
        self._kept.append(Kept(message, now + wait, now + self._hold * _SHARE))
        self._bytes += _size(message)

    def due(self, now: float) -> list[Received[H]]:
        """Those whose time has come, or will have soon."""
        return [one.message for one in self._remove([one for one in self._kept if one.due - SOON <= now])]

    def held_too_long(self, now: float) -> list[Received[H]]:
        """Those to be written anew."""
        return [one.message for one in self._remove([one for one in self._kept if one.until <= now])]

    def take_all(self) -> list[Received[H]]:
        return [one.message for one in self._remove([*self._kept])]

    def _remove(self, kept: Sequence[Kept[H]]) -> Sequence[Kept[H]]:
        gone = set(map(id, kept))
        self._kept = [one for one in self._kept if id(one) not in gone]
        self._bytes -= sum(_size(one.message) for one in kept)
        return kept


def _size(message: Received[H]) -> int:
    return (
        len(message.value or b"")
        + len(message.key or b"")
        + sum(len(header.value or b"") for header in message.headers)
    )
