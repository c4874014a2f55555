"""The format of records in the dead-letter topic. Pure.

`sidecar.subscription.dead_letters` reads the topic for operators.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from sidecar.core.state.record_slices import RecordSlice
from sidecar.model.records import Header, Message, Record, record_id
from sidecar.model.wire import decode_frame

#: headers that a dead letter has, in this order, after those of the record
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
#: milliseconds since 1970 of the first day that `datetime` cannot represent
_LAST_MS = 253_402_300_800_000

#: what identifies a record: its id, its timestamp, and the broker's own identity of it
Identity = tuple[str, int, bytes]


@dataclass(frozen=True, slots=True)
class DeadLetterEntry:
    #: the identity of the original (see `record_id`): stable, however often it was written
    id: str
    topic: str
    #: as it was in its own topic
    record: Record
    group: str
    reason: str
    attempts: int
    worker: str
    dead_lettered_ms: int
    #: it was sent back, and has not died again since
    redriven: bool = False

    @property
    def identity(self) -> Identity:
        """What identifies the record. Its id alone is not enough: a recreated topic has the same positions again."""
        return self.id, self.record.timestamp_ms, self.record.ref

    @property
    def topic_id(self) -> str:
        """The identity of its topic, if its broker has one."""
        place = record_id(self.topic, self.record.lane, self.record.position, "")
        return self.id.removeprefix(place).removeprefix("@")


def write(slice_: RecordSlice, *, group: str, reason: str, worker: str, wall_ms: int) -> Message:
    """A single record as it is written to the dead-letter topic."""
    record = decode_frame(slice_.chunk.frames[slice_.start])
    topic, topic_id = slice_.topic
    values = (
        record_id(topic, record.lane, record.position, topic_id),
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
    added = tuple(Header(name, str(value).encode()) for name, value in zip(HEADERS, values, strict=True))
    return Message(record.key, record.value, (*record.headers, *added), aside=True)


def read(record: Record) -> DeadLetterEntry | None:
    """A record of the dead-letter topic; None if Offramp did not write it."""
    ours = record.headers[-len(HEADERS) :]
    if tuple(header.name for header in ours) != HEADERS:
        return None
    try:
        id_, topic, lane, position, ref, timestamp_ms, group, reason, attempts, worker, wall_ms, _ = (
            (header.value or b"").decode() for header in ours
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
