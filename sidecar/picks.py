"""What a worker can take, and what it gets. Values only."""

from typing import NamedTuple

from sidecar.model import ClosedBy
from sidecar.spans import Parcel, Span


class Room(NamedTuple):
    """What the worker that waits can take."""

    #: most bytes of a batch; a single record may exceed it
    bytes: int
    #: most bytes that its connection takes at all; 0: no record beyond `bytes` is wanted
    hard_bytes: int


class Pick(NamedTuple):
    """Records that go out together."""

    spans: list[Span]
    closed_by: ClosedBy
    apart: bool = False
    origin: int = 0
    setbacks: int = 0
    #: parcels that wait no more
    parcels: tuple[Parcel, ...] = ()
    #: the session that gets it has nothing else in hand, and gets nothing else meanwhile
    solitary: bool = False
