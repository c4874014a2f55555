"""Dead letters as they are stored in their topic. Pure.

A dead letter is the original record with headers appended that say where it came from and why it is here
(docs/operations.md). Records in the topic that are not dead letters are skipped.
"""

from collections.abc import Iterable

from offramp.v1 import admin_pb2, record_pb2

#: the headers that follow the record's own, in this order
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


def parse_dead_letters(records: Iterable[record_pb2.Record], group: str) -> list[admin_pb2.DeadLetter]:
    """The dead letters of a group among the records of a dead-letter topic."""
    return [found for record in records if (found := _parse(record, group)) is not None]


def _parse(record: record_pb2.Record, group: str) -> admin_pb2.DeadLetter | None:
    appended = record.headers[-len(HEADERS) :]
    if tuple(header.name for header in appended) != HEADERS:
        return None
    try:
        values = {header.name: header.value.decode() for header in appended}
        if values["offramp-group"] != group:
            return None
        lane, position = int(values["offramp-lane"]), int(values["offramp-position"])
        original = record_pb2.Record()
        original.CopyFrom(record)
        del original.headers[-len(HEADERS) :]
        original.lane, original.position = lane, position
        original.timestamp_ms = int(values["offramp-timestamp-ms"])
        return admin_pb2.DeadLetter(
            id=values["offramp-id"],
            topic=values["offramp-topic"],
            lane=lane,
            position=position,
            reason=values["offramp-reason"],
            attempts=int(values["offramp-attempts"]),
            worker=values["offramp-worker"],
            dead_lettered_ms=int(values["offramp-dead-lettered-ms"]),
            record=original,
        )
    except ValueError:
        # Not numbers, or too large: not written by a sidecar.
        return None
