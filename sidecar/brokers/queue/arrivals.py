"""Messages that have arrived and wait to be polled, encoded. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sidecar.brokers.queue.driver import H, Received
from sidecar.model.records import Chunk, Lane
from sidecar.model.wire import MORE, SMALL, encode_header, varint


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
        """Adds messages at their positions, without those at -1. Returns the sizes of the others. The hot path: frames
        as `wire.encode_frame` makes them, with what neighbours mostly have in common encoded once."""
        sizes: list[int] = []
        segment = Segment([], [], False)
        join, small, more = b"".join, SMALL, MORE
        number = self._lane.number
        mark = b"\x20" + varint(number) if number else b""
        flag_all = self._flag_all
        last_time = high = -1
        timed = ending = b""
        for message, position in zip(messages, positions, strict=True):
            if position < 0:
                continue
            _, key, value, headers, time, ref, _, before, processed = message
            flag = flag_all or processed or before > 0
            if flag is not segment.possibly_processed:
                self._put(segment)
                segment = Segment([], [], flag)
            head = b""
            if key is not None:
                size = len(key)
                head = b"\x0a" + (small[size] if size < 16384 else varint(size)) + key
            if value is None:
                value = b""
            else:
                size = len(value)
                head += b"\x12" + (small[size] if size < 16384 else varint(size))
            if time != last_time:
                last_time, timed = time, b"\x38" + varint(time) if time > 0 else b""
            if position >> 14 != high:
                high = position >> 14
                ending = varint(high)
            place = b""
            if high:
                place = b"\x28" + more[position & 16383] + ending
            elif position:
                place = b"\x28" + small[position]
            tail = mark + place + (b"\x32" + varint(len(ref)) + ref + timed if ref else timed)
            if headers:
                tail = join(map(encode_header, headers)) + tail
            size = len(head) + len(value) + len(tail)
            frame = join((b"\x22", small[size] if size < 16384 else varint(size), head, value, tail))
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

    def flag(self) -> None:
        """Somebody else may have had what waits."""
        self._segments = deque(segment._replace(possibly_processed=True) for segment in self._segments)

    def clear(self) -> None:
        self._segments.clear()
        self.records = 0
