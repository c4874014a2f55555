"""Messages of the library to records of ours. The hot path: one call for each fetch, nothing else per record.

`encode` is the seam for a compiled encoder: a list of messages in, frames by lane out.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Message

from sidecar.model.records import Header, Lane
from sidecar.model.wire import MORE, SMALL, encode_header, varint


class Taken(NamedTuple):
    """Consecutive messages of one lane, encoded."""

    lane: Lane
    positions: Sequence[int]
    frames: list[bytes]

    def starting_at(self, position: int) -> "Taken":
        """Without what lies before."""
        if self.positions[0] >= position:
            return self
        skip = bisect_left(self.positions, position)
        return Taken(self.lane, self.positions[skip:], self.frames[skip:])


class Encoded(NamedTuple):
    taken: list[Taken]
    #: messages that are not records but tell of something: the end of a lane, an error
    tidings: list[Message]


def encode(messages: Iterable[Message]) -> Encoded:
    """Frames of all records, by lane, in order, as `wire.encode_frame` makes them."""
    lanes: dict[tuple[str, int], tuple[bytes, list[int], list[bytes]]] = {}
    tidings: list[Message] = []
    join, small, more = b"".join, SMALL, MORE
    topic: Any = None
    number: Any = -1
    stamp: Any = -1
    high = -1
    mark = stamped = ending = b""
    positions: list[int] = []
    frames: list[bytes] = []
    for message in messages:
        if message.error() is not None:
            tidings.append(message)
            continue
        if message.partition() != number or message.topic() != topic:
            topic, number = message.topic(), message.partition()
            if (topic, number) not in lanes:
                lanes[topic, number] = (b"\x20" + varint(number) + b"\x28" if number else b"\x28", [], [])
            mark, positions, frames = lanes[topic, number]
        position: Any = message.offset()
        time = message.timestamp()[1]
        if time != stamp or position >> 14 != high:
            # Neighbours mostly have the same time, and positions that differ in their last digits only.
            stamp, high = time, position >> 14
            stamped = b"\x38" + varint(time) if time > 0 else b""
            ending = varint(high) + stamped
        key: Any = message.key()
        value: Any = message.value()
        if high:
            tail = mark + more[position & 16383] + ending
        else:
            tail = mark + small[position] + stamped if position else mark[:-1] + stamped
        headers = message.headers()
        if headers:
            tail = join(encode_header(Header(*header)) for header in headers) + tail
        head = b""
        if key is not None:
            size = len(key)
            head = b"\x0a" + (small[size] if size < 16384 else varint(size)) + key
        if value is None:
            value = b""
        else:
            size = len(value)
            head += b"\x12" + (small[size] if size < 16384 else varint(size))
        size = len(head) + len(value) + len(tail)
        frames.append(join((b"\x22", small[size] if size < 16384 else varint(size), head, value, tail)))
        positions.append(position)
    taken = [Taken(Lane(*lane), _dense(positions), frames) for lane, (_, positions, frames) in lanes.items()]
    return Encoded(taken, tidings)


def _dense(positions: list[int]) -> Sequence[int]:
    """Positions without gaps take no room."""
    first, last = positions[0], positions[-1]
    return range(first, last + 1) if last - first + 1 == len(positions) else positions
