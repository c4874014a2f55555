"""How far the next range of each lane may go. Pure.

Limits are shared in proportion to what waits in each lane, so that lanes which wait for the same time stay together in
time: a reader with a watermark would take the records of a lane that is left behind for late ones. But each lane that
has anything gets at least one record, so that none starves; if there is not enough for that, they take turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from sidecar.brokers.cursor import RangeEstimate
from sidecar.model.records import Lane


@dataclass(frozen=True, slots=True)
class Limits:
    """Of all lanes together. 0: none."""

    records: int = 0
    bytes: int = 0


def plan(
    waiting: Mapping[Lane, RangeEstimate], sizes: Mapping[Lane, int], limits: Limits, *, turn: int = 0
) -> dict[Lane, int]:
    """The position up to which each lane may be read. Lanes of which nothing is to be read are left out.

    `sizes` are bytes of a record of each lane, where there is a limit of bytes. `turn` says who is first where there is
    not enough for all: another one each time.
    """
    lanes = [lane for lane in sorted(waiting) if waiting[lane].records > 0]
    shares = [waiting[lane].records for lane in lanes]
    if limits.records:
        shares = allot(shares, [1] * len(lanes), limits.records, turn)
    if limits.bytes:
        shares = allot(shares, [max(1, sizes[lane]) for lane in lanes], limits.bytes, turn)
    return {lane: waiting[lane].position_after(records) for lane, records in zip(lanes, shares, strict=True) if records}


def turn_of(start: Mapping[Lane, int]) -> int:
    """Whose turn it is for a reader that is here: the same for the same place, and mostly another for the next one.

    By a hash, because positions may move in steps of any size: divided by the number of lanes, their sum, and a mere
    checksum too, may leave the same for ever.
    """
    return int.from_bytes(blake2b(repr(sorted(start.items())).encode(), digest_size=8).digest())


def allot(wanted: Sequence[int], sizes: Sequence[int], limit: int, turn: int) -> list[int]:
    """How many of what each wants, where one of them has a size, and all together the limit.

    One is always given, even if it is larger than the limit.
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
    # A budget of left * (more * size) / total bytes makes so many, rounded down:
    extra = [left * more // total for more in rest]
    left -= sum(more * size for more, size in zip(extra, sizes, strict=True))
    for index in in_turn:
        if extra[index] < rest[index] and sizes[index] <= left:
            extra[index] += 1
            left -= sizes[index]
    return [got + more for got, more in zip(shares, extra, strict=True)]
