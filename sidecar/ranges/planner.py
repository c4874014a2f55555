"""Plans how far the next range of each lane may extend. Pure.

Limits are divided in proportion to the backlog of each lane, so that lanes advance together in time: a reader with a
watermark would treat the records of a lane that falls behind as late. But each lane with records gets at least one, so
that none starves; if the limit is too small for that, they take turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from sidecar.brokers.range_cursor import RangeEstimate
from sidecar.model.records import Lane


@dataclass(frozen=True, slots=True)
class Limits:
    """For all lanes together. 0: no limit."""

    records: int = 0
    bytes: int = 0


def plan(
    waiting: Mapping[Lane, RangeEstimate], sizes: Mapping[Lane, int], limits: Limits, *, turn: int = 0
) -> dict[Lane, int]:
    """The position up to which each lane may be read. Lanes of which nothing is to be read are left out.

    `sizes`: bytes of an average record of each lane, needed if bytes are limited. `turn`: which lane comes first if the
    limit is too small for all.
    """
    lanes = [lane for lane in sorted(waiting) if waiting[lane].records > 0]
    shares = [waiting[lane].records for lane in lanes]
    if limits.records:
        shares = allocate(shares, [1] * len(lanes), limits.records, turn)
    if limits.bytes:
        shares = allocate(shares, [max(1, sizes[lane]) for lane in lanes], limits.bytes, turn)
    return {lane: waiting[lane].position_after(records) for lane, records in zip(lanes, shares, strict=True) if records}


def rotation_seed(start: Mapping[Lane, int]) -> int:
    """The `turn` for a reader at these positions: always the same for the same positions, mostly another for the next.

    A hash, because positions may advance in steps of any size: the remainder of their sum, or of a checksum, may never
    change.
    """
    return int.from_bytes(blake2b(repr(sorted(start.items())).encode(), digest_size=8).digest())


def allocate(wanted: Sequence[int], sizes: Sequence[int], limit: int, turn: int) -> list[int]:
    """How many items each one gets of those that it wants, where an item has a size and the total size is limited.

    At least one item is allocated, even if it is larger than the limit.
    """
    shares = [0] * len(wanted)
    left = limit
    in_turn = [(index + turn) % len(wanted) for index in range(len(wanted))]
    for index in in_turn:
        if wanted[index] and (sizes[index] <= left or not any(shares)):
            shares[index] = 1
            left = max(0, left - sizes[index])
    rest = [want - got if got else 0 for want, got in zip(wanted, shares, strict=True)]
    total = sum(more * size for more, size in zip(rest, sizes, strict=True))
    if total <= left:
        return [got + more for got, more in zip(shares, rest, strict=True)]
    # A budget of left * (more * size) / total bytes allows so many, rounded down:
    extra = [left * more // total for more in rest]
    left -= sum(more * size for more, size in zip(extra, sizes, strict=True))
    for index in in_turn:
        if extra[index] < rest[index] and sizes[index] <= left:
            extra[index] += 1
            left -= sizes[index]
    return [got + more for got, more in zip(shares, extra, strict=True)]
