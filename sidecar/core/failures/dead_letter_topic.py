"""How a record that failed for good looks in the dead-letter topic. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sidecar.core.state.record_slices import RecordSlice
from sidecar.model.records import Header, Message, Record
from sidecar.model.wire import decode_frame

#: a dead letter carries these headers, in this order, after its own
HEADERS = (
    "offramp-id",
    "offramp-topic",
    "offramp-lane",
    "offramp-position",
    "offramp-ref",
    "offramp-timestamp-ms",
    "offramp-group",
    "offramp-reason",
    "offramp-attempts",
    "offramp-worker",
    "offramp-dead-lettered-ms",
    "offramp-dead-lettered-at",
)
#: the first millisecond that is no date any more
_LAST_MS = 253_402_300_800_000


@dataclass(frozen=True, slots=True)
class DeadLetterEntry:
    #: `topic/lane/position` of the origin: stable, however often it was written
    id: str
    topic: str
    #: as it was in its own topic
    record: Record
    group: str
    reason: str
    attempts: int
    worker: str
    dead_lettered_ms: int


def write(slice_: RecordSlice, *, group: str, reason: str, worker: str, wall_ms: int) -> Message:
    """A single record as it is written to the dead-letter topic."""
    record = decode_frame(slice_.chunk.frames[slice_.start])
    topic = slice_.chunk.shown.topic
    values = (
        f"{topic}/{record.lane}/{record.position}",
        topic,
        record.lane,
        record.position,
        record.ref.hex(),
        record.timestamp_ms,
        group,
        reason,
        max(1, slice_.history.failures),
        worker,
        wall_ms,
        datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds"),
    )
    said = tuple(Header(name, str(value).encode()) for name, value in zip(HEADERS, values, strict=True))
    return Message(record.key, record.value, (*record.headers, *said), aside=True)


def read(record: Record) -> DeadLetterEntry | None:
    """What a record of the dead-letter topic says; None if Offramp did not write it."""
    said = record.headers[-len(HEADERS) :]
    if tuple(header.name for header in said) != HEADERS:
        return None
    try:
        id_, topic, lane, position, ref, timestamp_ms, group, reason, attempts, worker, wall_ms, _ = (
            (header.value or b"").decode() for header in said
        )
        original = Record(
            record.key,
            record.value,
            record.headers[: -len(HEADERS)],
            _number(lane, 1 << 32),
            _number(position),
            _number(timestamp_ms),
            bytes.fromhex(ref),
        )
        wall = _number(wall_ms, _LAST_MS)
        return DeadLetterEntry(id_, topic, original, group, reason, _number(attempts, 1 << 32), worker, wall)
    except ValueError:
        return None


def _number(text: str, limit: int = 1 << 63) -> int:
    number = int(text)
    if not 0 <= number < limit:
        raise ValueError(text)
    return number
