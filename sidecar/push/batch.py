"""A batch as it is pushed: its records, decoded, with what is known of earlier deliveries. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.model.records import Delivery, Record, record_id
from sidecar.model.wire import decode_frame


@dataclass(frozen=True, slots=True)
class PushedRecord:
    record: Record
    #: the broker's own identity of it: the same in each delivery
    id: str
    attempt: int = 1
    possibly_processed: bool = False

    def header(self, *names: str) -> str | None:
        """The text of the last header that has one of these names, in any case; None if there is none."""
        for header in reversed(self.record.headers):
            if header.value is not None and header.name.lower() in names:
                return header.value.decode(errors="replace")
        return None


@dataclass(frozen=True, slots=True)
class PushedBatch:
    #: of this delivery: another one has another id
    id: str
    subscription: str
    topic: str
    records: Sequence[PushedRecord]

    @classmethod
    def of(cls, delivery: Delivery, subscription: str) -> "PushedBatch":
        history = [(1, False)] * delivery.records
        for told in delivery.redeliveries:
            history[told.first : told.first + told.count] = [(told.attempt, told.possibly_processed)] * told.count
        records = []
        for frame, (attempt, possibly_processed) in zip(delivery.frames, history, strict=True):
            record = decode_frame(frame)
            id_ = record_id(delivery.topic, record.lane, record.position, delivery.topic_id)
            records.append(PushedRecord(record, id_, attempt, possibly_processed))
        return cls(delivery.lease.hex(), subscription, delivery.topic, records)
