"""The group's retry topic: putting records aside that must wait long, and bringing them back.

A parked record keeps its key, value and headers; one more header, the last, says where it comes from, what happened
to it and when it is due. The lanes of the topic hold waits of one order of magnitude each, so that a short
wait never queues behind a long one.

Writing a record here and committing the place it came from are not one step, and a write without an answer is repeated.
So a record may come from here although it also came from its own lane, or twice: it always comes back as doubtful.
"""

import json
from dataclasses import dataclass
from typing import Any

from sidecar.core.state.record_slices import FRESH, History, RecordSlice
from sidecar.model.records import Chunk, Header, Lane, Message
from sidecar.model.wire import decode_frame, encode_frame

HEADER = "offramp-parked"
#: waits of up to this many seconds go to the first lane; each further lane takes waits four times as long
_SHORTEST, _FACTOR = 60.0, 4.0
_INT, _LONG = 1 << 32, 1 << 63
#: one more of each is still a number that the protocol can say
_COUNT = 1 << 31
#: what the header says in numbers, each below its limit
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
    """A record as it comes back: it looks as it did when it was parked."""

    chunk: Chunk
    history: History
    #: milliseconds since 1970
    not_before_ms: int


def lane_for(wait: float, lanes: int) -> int:
    number = 0
    limit = _SHORTEST
    while wait > limit and number < lanes - 1:
        number += 1
        limit *= _FACTOR
    return number


def park(slice_: RecordSlice, *, now: float, due: float, wall_ms: int, lanes: int) -> Message:
    """A single record as it is written to the retry topic."""
    return _message(
        slice_.chunk.frames[slice_.start], slice_.chunk.shown.topic, slice_.history, due - now, wall_ms, lanes, now
    )


def redriven(frame: bytes, topic: str, *, wall_ms: int) -> Message:
    """A dead letter on its way back: due at once, with all its attempts before it."""
    return _message(frame, topic, FRESH, 0.0, wall_ms, 1, 0.0)


def unpark(chunk: Chunk, index: int, *, now: float, wall_ms: int, possibly_processed: bool) -> Unparked:
    """A record of the retry topic. One that Offramp did not write is delivered as it is."""
    frame, position = chunk.frames[index], chunk.positions[index]
    record = decode_frame(frame)
    said = _read(record.headers[-1]) if record.headers else None
    if said is None:
        return Unparked(Chunk(chunk.lane, [position], [frame]), History(possibly_processed=possibly_processed), 0)
    origin = Lane(said["topic"], said["lane"])
    original = encode_frame(
        record.key,
        record.value,
        record.headers[:-1],
        origin.number,
        said["position"],
        said["timestamp_ms"],
        bytes.fromhex(said["ref"]),
    )
    history = History(
        failures=said["failures"],
        counted_failures=said["strikes"],
        worker_crashes=said["deaths"],
        possibly_processed=True,
        first_failed=None if said["failed_ms"] is None else now - (wall_ms - said["failed_ms"]) / 1000,
        max_batch_size=said["company"],
    )
    return Unparked(Chunk(chunk.lane, [position], [original], origin=origin), history, said["not_before_ms"])


def _message(frame: bytes, topic: str, history: History, wait: float, wall_ms: int, lanes: int, now: float) -> Message:
    record = decode_frame(frame)
    said = {
        "v": 1,
        "topic": topic,
        "lane": record.lane,
        "position": record.position,
        "ref": record.ref.hex(),
        "timestamp_ms": record.timestamp_ms,
        "not_before_ms": min(wall_ms + int(wait * 1000), _LONG - 1),
        "failures": history.failures,
        "strikes": history.counted_failures,
        "deaths": history.worker_crashes,
        # Always, and not read any more: sidecars of 0.1.0 take a record without it for one that somebody else wrote.
        "doubtful": True,
        # When it first failed, as time of day: the loop's clock does not survive a restart.
        "failed_ms": None if history.first_failed is None else wall_ms - int((now - history.first_failed) * 1000),
        "company": history.max_batch_size,
    }
    headers = (*record.headers, Header(HEADER, json.dumps(said).encode()))
    return Message(record.key, record.value, headers, lane=lane_for(wait, lanes), aside=True)


def _read(header: Header) -> dict[str, Any] | None:
    """What the header says; None unless all of it can be used: anyone may write to a topic."""
    if header.name != HEADER or header.value is None:
        return None
    try:
        said = json.loads(header.value)
        if not isinstance(said, dict) or said.get("v") != 1:
            return None
        said["topic"].encode()
        bytes.fromhex(said["ref"])
        failed_ms = said["failed_ms"]
        usable = all(type(said[name]) is int and 0 <= said[name] < limit for name, limit in _NUMBERS.items()) and (
            failed_ms is None or (type(failed_ms) is int and abs(failed_ms) < _LONG)
        )
        return said if usable else None
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
        return None
