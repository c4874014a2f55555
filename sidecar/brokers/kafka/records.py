"""Encodes messages of the library as frames. The hot path: one call for each fetch, as little as possible per record.

`encode` is the seam for a compiled encoder: a list of messages in, frames by lane out.

In a broadcast, all pods share one retry topic. A header says which pod a record of it belongs to.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from confluent_kafka import Message as KafkaMessage

from sidecar.model.records import Header, Lane, Message
from sidecar.model.wire import MORE, SMALL, encode_header, varint

#: names the pod that a record of a broadcast's retry topic belongs to
_INSTANCE_HEADER = "offramp-instance"


class LaneRecords(NamedTuple):
    """Consecutive records of one lane, encoded."""

    lane: Lane
    positions: Sequence[int]
    frames: list[bytes]

    def starting_at(self, position: int) -> "LaneRecords":
        """Without the records before the position."""
        if self.positions[0] >= position:
            return self
        skip = bisect_left(self.positions, position)
        return LaneRecords(self.lane, self.positions[skip:], self.frames[skip:])


class Encoded(NamedTuple):
    records: list[LaneRecords]
    #: messages that are no records: errors, and the ends of lanes
    error_messages: list[KafkaMessage]


def encode(messages: Iterable[KafkaMessage]) -> Encoded:
    """Frames of all records, by lane, in order, as `wire.encode_frame` makes them."""
    lanes: dict[tuple[str, int], tuple[bytes, list[int], list[bytes]]] = {}
    error_messages: list[KafkaMessage] = []
    join, small, more = b"".join, SMALL, MORE
    topic: Any = None
    number: Any = -1
    last_time: Any = -1
    high = -1
    lane_field = time_field = ending = b""
    positions: list[int] = []
    frames: list[bytes] = []
    for message in messages:
        if message.error() is not None:
            error_messages.append(message)
            continue
        if message.partition() != number or message.topic() != topic:
            topic, number = message.topic(), message.partition()
            if (topic, number) not in lanes:
                lanes[topic, number] = (b"\x20" + varint(number) + b"\x28" if number else b"\x28", [], [])
            lane_field, positions, frames = lanes[topic, number]
        position: Any = message.offset()
        time = message.timestamp()[1]
        if time != last_time or position >> 14 != high:
            # Neighbours mostly have the same time, and positions that differ only in their low bits.
            last_time, high = time, position >> 14
            time_field = b"\x38" + varint(time) if time > 0 else b""
            ending = varint(high) + time_field
        key: Any = message.key()
        value: Any = message.value()
        if high:
            tail = lane_field + more[position & 16383] + ending
        else:
            tail = lane_field + small[position] + time_field if position else lane_field[:-1] + time_field
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
    records = [LaneRecords(Lane(*lane), _compact(positions), frames) for lane, (_, positions, frames) in lanes.items()]
    return Encoded(records, error_messages)


def _compact(positions: list[int]) -> Sequence[int]:
    """Positions without gaps take no memory as a range."""
    first, last = positions[0], positions[-1]
    return range(first, last + 1) if last - first + 1 == len(positions) else positions


def add_instance(messages: Sequence[Message], instance: str) -> list[Message]:
    """Mark messages for the retry topic as this pod's."""
    mine = Header(_INSTANCE_HEADER, instance.encode())
    return [replace(message, headers=(*message.headers, mine)) for message in messages]


def instance_filter(retry_topics: Collection[str], instance: str) -> Callable[[list[KafkaMessage]], list[KafkaMessage]]:
    """Leaves out records that other pods wrote to the retry topic: for this pod they are gaps."""
    mine = (_INSTANCE_HEADER, instance.encode())

    def keep(message: KafkaMessage) -> bool:
        if message.error() is not None or message.topic() not in retry_topics:
            return True
        headers = [*(message.headers() or ())]
        if mine not in headers:
            return False
        message.set_headers([header for header in headers if header[0] != _INSTANCE_HEADER])
        return True

    return lambda messages: [message for message in messages if keep(message)]
