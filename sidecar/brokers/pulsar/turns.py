"""What a poll takes of the lanes that have something. Pure."""

from collections.abc import Sequence
from typing import Protocol

from sidecar.model.records import Chunk


class Giving(Protocol):
    """A lane, as far as it gives."""

    @property
    def ready(self) -> int: ...
    def take(self, max_records: int, max_bytes: int, *, at_least: int, possibly_processed: bool) -> Chunk | None: ...


def take_in_turn(
    lanes: Sequence[Giving], turn: int, max_records: int, max_bytes: int, *, possibly_processed: bool
) -> list[Chunk]:
    """Each lane its share, another one first at each turn; what some leave of it goes to the others."""
    first = turn % len(lanes) if lanes else 0
    ready = [*lanes[first:], *lanes[:first]]
    # The first one gets a record even if that is large; after it, those with little leave the more to the others.
    ready[1:] = sorted(ready[1:], key=lambda lane: lane.ready)
    chunks: list[Chunk] = []
    for index, lane in enumerate(ready):
        left = len(ready) - index
        share, size = max(1, max_records // left), max_bytes // left
        while share > 0 and max_records > 0 and lane.ready:
            chunk = lane.take(
                min(share, max_records), size, at_least=0 if chunks else 1, possibly_processed=possibly_processed
            )
            if chunk is None:
                break
            chunks.append(chunk)
            count, bytes_ = len(chunk.frames), chunk.ends[-1]
            share, size = share - count, size - bytes_
            max_records, max_bytes = max_records - count, max_bytes - bytes_
    return chunks
