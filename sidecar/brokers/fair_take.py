"""Takes records from several lanes, so that none starves. Pure."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from sidecar.model.records import Chunk


class Buffered(Protocol):
    @property
    def ready(self) -> int:
        """The number of records that may be taken now."""


L = TypeVar("L", bound=Buffered)


def fair_take(
    lanes: Sequence[L], turn: int, max_records: int, max_bytes: int, take: Callable[[L, int, int, int], Chunk | None]
) -> list[Chunk]:
    """Takes from each lane its share, beginning with another lane at each turn. What some leave goes to others.

    `take` gets a lane, the most records and bytes, and the least records, which may exceed the bytes."""
    first = turn % len(lanes) if lanes else 0
    ready = [*lanes[first:], *lanes[:first]]
    # The first lane gets a record however large it is. After it, lanes with little come first and leave the rest.
    ready[1:] = sorted(ready[1:], key=lambda lane: lane.ready)
    chunks: list[Chunk] = []
    for index, lane in enumerate(ready):
        left = len(ready) - index
        share, size = max(1, max_records // left), max_bytes // left
        while share > 0 and max_records > 0 and lane.ready:
            chunk = take(lane, min(share, max_records), size, 0 if chunks else 1)
            if chunk is None:
                break
            chunks.append(chunk)
            count, bytes_ = len(chunk.frames), chunk.ends[-1]
            share, size = share - count, size - bytes_
            max_records, max_bytes = max_records - count, max_bytes - bytes_
    return chunks
