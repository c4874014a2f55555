"""The format of records in the group's retry topic, where records are parked that must wait long. Pure.

A parked record keeps its key, value and headers. One more header, the last, says where it comes from, what happened to
it and when it is due. Each lane of the topic holds waits of one order of magnitude, so that a short wait never queues
behind a long one.

Writing a record to this topic and committing its original position are not atomic, and a write whose outcome is not
known is repeated. So a record may come from its own lane as well, or from here twice: it is always flagged as possibly
processed.

Clocks of machines disagree, and jump. So the header also says how long the record was to wait, and no reader lets it
wait longer than that from when it arrives.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.core.state.record_slices import FRESH, DeliveryHistory, RecordSlice
from sidecar.model.records import Chunk, Header, Lane, Message, Record
from sidecar.model.wire import decode_frame, encode_frame

HEADER = "offramp-parked"
#: waits of up to this many seconds go to the first lane; each further lane takes waits four times as long
_SHORTEST, _FACTOR = 60.0, 4.0
_INT, _LONG = 1 << 32, 1 << 63
#: a count plus one still fits into the field of the protocol
_COUNT = 1 << 31
#: the numbers in the header, and the limit of each
_NUMBERS = {
    "lane": _INT,
    "position": _LONG,
    "timestamp_ms": _LONG,
    "not_before_ms": _LONG,
    "failures": _COUNT,
    "strikes": _COUNT,
    "deaths": _COUNT,
    "company": _COUNT,
}


@dataclass(frozen=True, slots=True)
class Unparked:
    """A record in its original form."""

    chunk: Chunk
    history: DeliveryHistory
    #: when it is due, in milliseconds since 1970 by the reader's clock
    not_before_ms: int


def is_parked(frame: bytes) -> bool:
    """Whether it is a record that Offramp has parked."""
    headers = decode_frame(frame).headers
    return bool(headers) and _read(headers[-1]) is not None


def lane_for(wait: float, lanes: int) -> int:
    """The lane of the retry topic for a wait of this many seconds."""
    number = 0
    limit = _SHORTEST
    while wait > limit and number < lanes - 1:
        number += 1
        limit *= _FACTOR
    return number


def park(slice_: RecordSlice, *, now: float, due: float, wall_ms: int, lanes: int) -> Message:
    """The message that parks a single record."""
    record = decode_frame(slice_.chunk.frames[slice_.start])
    return _message(record, *slice_.topic, slice_.history, due - now, wall_ms, lanes, now)


def redriven(record: Record, topic: str, topic_id: str, *, wall_ms: int) -> Message:
    """The message that sends a dead letter back: due at once, with all attempts left."""
    return _message(record, topic, topic_id, FRESH, 0.0, wall_ms, 1, 0.0)


def rescued(record: Record, topic: str, topic_id: str, *, deliveries: int, wall_ms: int) -> Message:
    """The message that saves a record which its broker would drop at one of its next deliveries: due at once. Those so
    far show, and do not count against it."""
    return _message(record, topic, topic_id, DeliveryHistory(failures=deliveries), 0.0, wall_ms, 1, 0.0)


def seconds_until_due(headers: Sequence[Header], wall_ms: int) -> float:
    """How long the parked record with these headers has to wait; 0 for others."""
    info = _read(headers[-1]) if headers else None
    if info is None:
        return 0.0
    wait_ms: int = max(0, info["not_before_ms"] - wall_ms)
    longest: int = info.get("wait_ms", wait_ms)
    return min(wait_ms, longest) / 1000


def unpark(chunk: Chunk, index: int, *, now: float, wall_ms: int, possibly_processed: bool) -> Unparked:
    """The original of a record in the retry topic. One that Offramp did not write is its own original."""
    frame, position = chunk.frames[index], chunk.positions[index]
    record = decode_frame(frame)
    info = _read(record.headers[-1]) if record.headers else None
    if info is None:
        return Unparked(
            Chunk(chunk.lane, [position], [frame]), DeliveryHistory(possibly_processed=possibly_processed), 0
        )
    origin = Lane(info["topic"], info["lane"])
    original = encode_frame(
        record.key,
        record.value,
        record.headers[:-1],
        origin.number,
        info["position"],
        info["timestamp_ms"],
        bytes.fromhex(info["ref"]),
    )
    history = DeliveryHistory(
        failures=info["failures"],
        counted_failures=info["strikes"],
        worker_crashes=info["deaths"],
        possibly_processed=True,
        first_failed=None if info["failed_ms"] is None else now - max(0, wall_ms - info["failed_ms"]) / 1000,
        max_batch_size=info["company"],
    )
    # Sidecars of 0.1.0 did not write the identity.
    back = Chunk(chunk.lane, [position], [original], origin=origin, topic_id=info.get("topic_id", ""))
    # Nor the wait; but they stamped the record with the clock that the due time is of, unless the broker does it.
    wait_ms = info.get("wait_ms", max(0, info["not_before_ms"] - record.timestamp_ms))
    return Unparked(back, history, min(info["not_before_ms"], wall_ms + wait_ms))


def _message(
    record: Record,
    topic: str,
    topic_id: str,
    history: DeliveryHistory,
    wait: float,
    wall_ms: int,
    lanes: int,
    now: float,
) -> Message:
    wait_ms = min(int(wait * 1000), _LONG - 1 - wall_ms)
    info = {
        "v": 1,
        "topic": topic,
        "topic_id": topic_id,
        "lane": record.lane,
        "position": record.position,
        "ref": record.ref.hex(),
        "timestamp_ms": record.timestamp_ms,
        "not_before_ms": wall_ms + wait_ms,
        "wait_ms": wait_ms,
        "failures": history.failures,
        "strikes": history.counted_failures,
        "deaths": history.worker_crashes,
        # Not read any more, but sidecars of 0.1.0 take a record without it for one that somebody else wrote.
        "doubtful": True,
        # As time of day: the loop's clock does not survive a restart.
        "failed_ms": None if history.first_failed is None else wall_ms - int((now - history.first_failed) * 1000),
        "company": history.max_batch_size,
    }
    headers = (*record.headers, Header(HEADER, json.dumps(info).encode()))
    return Message(record.key, record.value, headers, lane=lane_for(wait, lanes), aside=True)


def _read(header: Header) -> dict[str, Any] | None:
    """The content of the header; None unless all of it is valid: anyone may write to the topic."""
    if header.name != HEADER or header.value is None:
        return None
    try:
        info = json.loads(header.value)
        if not isinstance(info, dict) or info.get("v") != 1:
            return None
        info["topic"].encode()
        bytes.fromhex(info["ref"])
        info.get("topic_id", "").encode()
        failed_ms = info["failed_ms"]
        numbers = _NUMBERS if "wait_ms" not in info else _NUMBERS | {"wait_ms": _LONG}
        usable = all(type(info[name]) is int and 0 <= info[name] < limit for name, limit in numbers.items()) and (
            failed_ms is None or (type(failed_ms) is int and abs(failed_ms) < _LONG)
        )
        return info if usable else None
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
        return None
