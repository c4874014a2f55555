"""Messages that have arrived and wait to be polled, encoded. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sidecar.brokers.queue.driver import H, Received
from sidecar.model.records import Chunk, Lane
from sidecar.model.wire import encode_frame


class Segment(NamedTuple):
    """Messages of one lane that are flagged alike."""

    positions: list[int]
    frames: list[bytes]
    possibly_processed: bool

    def cut(self, start: int, stop: int) -> "Segment":
        return Segment(self.positions[start:stop], self.frames[start:stop], self.possibly_processed)


class Arrivals:
    """Those of one lane."""

    def __init__(self, lane: Lane, *, flag_all: bool) -> None:
        self._lane = lane
        self._flag_all = flag_all
        self._segments: deque[Segment] = deque()
        self.records = 0

    def add(self, messages: Iterable[Received[H]], positions: Sequence[int]) -> list[int]:
        """Adds messages at their positions, without those at -1. Returns the sizes of the others. The hot path."""
        sizes: list[int] = []
        segment = Segment([], [], False)
        number = self._lane.number
        for (_, key, value, headers, timestamp_ms, ref, _, before, flagged), position in zip(
            messages, positions, strict=True
        ):
            if position < 0:
                continue
            flag = self._flag_all or flagged or before > 0
            if flag is not segment.possibly_processed:
                self._put(segment)
                segment = Segment([], [], flag)
            frame = encode_frame(key, value, headers, number, position, timestamp_ms, ref)
            segment.positions.append(position)
            segment.frames.append(frame)
            sizes.append(len(frame))
        self._put(segment)
        return sizes

    def _put(self, segment: Segment) -> None:
        if segment.frames:
            self._segments.append(segment)
            self.records += len(segment.frames)

    def take(self, max_records: int, max_bytes: int, at_least: int) -> Chunk | None:
        """The next records, up to the limits, but at least `at_least` of them. There must be some."""
        segment = self._segments[0]
        count, size = 0, 0
        for frame in segment.frames[:max_records]:
            size += len(frame)
            if size > max_bytes and count >= at_least:
                break
            count += 1
        if not count:
            return None
        if count < len(segment.frames):
            self._segments[0] = segment.cut(count, len(segment.frames))
            segment = segment.cut(0, count)
        else:
            self._segments.popleft()
        self.records -= count
        return Chunk(self._lane, segment.positions, segment.frames, possibly_processed=segment.possibly_processed)

    def clear(self) -> None:
        self._segments.clear()
        self.records = 0
