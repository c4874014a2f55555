"""Builds records, slices and lanes, for tests of the core."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

from sidecar.core.state.lane import LaneState
from sidecar.core.state.record_slices import FRESH, DeliveryHistory, RecordSlice
from sidecar.model.records import Assigned, Chunk, Header, Lane, Order, Run
from sidecar.model.wire import encode_frame
from sidecar.settings import SubscriptionSettings, WindowSettings

#: never full
WIDE = WindowSettings(records=1 << 40, bytes=1 << 50, span=1 << 50)  # type: ignore[arg-type]


def subscription_settings(**more: Any) -> SubscriptionSettings:
    return SubscriptionSettings(name="orders", topics=("orders",), **more)


def lane_state(
    number: int = 0,
    *,
    topic: str = "orders",
    order: Order = Order.NONE,
    window: WindowSettings = WIDE,
    start: int = 0,
    settled: Iterable[Run] = (),
    parked: bool = False,
) -> LaneState:
    """A lane that was never consumed before, unless `settled` is given."""
    assigned = Assigned(Lane(topic, number), start, tuple(settled), first=not settled)
    return LaneState(assigned, order, window, parked=parked)


def frame(position: int = 0, *, key: bytes | None = None, size: int = 0, lane: int = 0) -> bytes:
    """A record with a value of `size` bytes."""
    return encode_frame(key, b"v" * size, (Header("h", b"1"),), lane, position)


def chunk(
    positions: Sequence[int],
    *,
    lane: Lane = Lane("orders", 0),  # noqa: B008 - a tuple
    keys: Sequence[bytes | None] | None = None,
    sizes: Sequence[int] | None = None,
    origin: Lane | None = None,
) -> Chunk:
    keys = keys or [None] * len(positions)
    sizes = sizes or [0] * len(positions)
    frames = [
        frame(position, key=key, size=size, lane=lane.number)
        for position, key, size in zip(positions, keys, sizes, strict=True)
    ]
    return Chunk(lane, list(positions), frames, origin=origin)


def slice_of(
    records: int | Sequence[int],
    *,
    state: LaneState | None = None,
    keys: Sequence[bytes | None] | None = None,
    sizes: Sequence[int] | None = None,
    history: DeliveryHistory = FRESH,
) -> RecordSlice:
    """All of a new chunk: this many records from position 0 on, or those at the given positions."""
    positions = list(range(records)) if isinstance(records, int) else list(records)
    state = state or lane_state()
    whole = chunk(positions, lane=state.lane, keys=keys, sizes=sizes)
    return RecordSlice(state, whole, 0, len(positions), positions[0], history)


def positions_of(slices: Iterable[RecordSlice]) -> list[int]:
    """The positions of the records, one by one."""
    return [position for slice_ in slices for position in slice_.chunk.positions[slice_.start : slice_.stop]]


def places_of(slices: Iterable[RecordSlice]) -> list[tuple[Lane, int]]:
    """The lanes and positions of the records, one by one."""
    return [(slice_.lane.lane, position) for slice_ in slices for position in positions_of([slice_])]


class NoJitter(random.Random):
    """Backoffs always take their longest."""

    def random(self) -> float:
        return 0.0
