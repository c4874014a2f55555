"""One record of a batch."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from offramp.v1 import record_pb2 as pb
from offramp.verdicts import ACK, RELEASE, verdict

if TYPE_CHECKING:
    from offramp.batches import Batch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Header(NamedTuple):
    name: str
    #: None is a header without a value, which is not the same as an empty one
    value: bytes | None


class Record:
    """A view of one broker message: made when it is asked for, and cheap to make again.

    `ack`, `nack`, `reject`, `release` and `overloaded` mark this record; nothing travels before the batch is settled
    or flushed, and until then a later mark replaces an earlier one. Records without a mark fare as their batch does.
    """

    __slots__ = ("_message", "batch", "index")

    def __init__(self, batch: "Batch", index: int, message: pb.Record) -> None:
        self.batch = batch
        #: place in the batch
        self.index = index
        self._message = message

    @property
    def key(self) -> bytes | None:
        """None: the message has no key, which is not the same as an empty one."""
        return self._message.key if self._message.HasField("key") else None

    @property
    def value(self) -> bytes | None:
        """None: a null value (a tombstone on a compacted topic), which is not the same as an empty one."""
        return self._message.value if self._message.HasField("value") else None

    @property
    def headers(self) -> tuple[Header, ...]:
        """In the order of the message; names may repeat."""
        return tuple(self._headers())

    def header(self, name: str) -> bytes | None:
        """The value of the last header of this name; None if there is none."""
        value = None
        for header in self._headers():
            if header.name == name:
                value = header.value
        return value

    def _headers(self) -> Iterator[Header]:
        for header in self._message.headers:
            yield Header(header.name, header.value if header.HasField("value") else None)

    @property
    def topic(self) -> str:
        return self.batch.topic

    @property
    def lane(self) -> int:
        """The stream within the topic: a Kafka partition, for one."""
        return self._message.lane

    @property
    def position(self) -> int:
        """The place in the lane: a Kafka offset, for one."""
        return self._message.position

    @property
    def id(self) -> str:
        """`topic/lane/position`: the same at every delivery, and in dead letters."""
        return f"{self.batch.topic}/{self._message.lane}/{self._message.position}"

    @property
    def ref(self) -> bytes:
        """The broker's own name for the record where it needs one (a Pulsar message id); else empty."""
        return self._message.ref

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since 1970 as the broker has it; 0 if it has none."""
        return self._message.timestamp_ms

    @property
    def timestamp(self) -> datetime | None:
        """In UTC, as the broker has it; None if it has none."""
        milliseconds = self._message.timestamp_ms
        return _EPOCH + timedelta(milliseconds=milliseconds) if milliseconds else None

    @property
    def attempt(self) -> int:
        """1 for the first delivery, one more after each that failed."""
        return self.batch.redelivery(self.index)[0]

    @property
    def possibly_processed(self) -> bool:
        """The outcome of an earlier delivery is not known: it may have been processed already."""
        return self.batch.redelivery(self.index)[1]

    def ack(self) -> None:
        """Done."""
        self.batch.mark(self.index, ACK)

    def nack(self, reason: str | BaseException = "", *, after: float | None = None) -> None:
        """Failed, try again: after so many seconds, or after the subscription's backoff. Counts as an attempt."""
        self.batch.mark(self.index, verdict(pb.OUTCOME_NACK, reason, after))

    def reject(self, reason: str | BaseException) -> None:
        """Will never succeed: dead-letter it now."""
        self.batch.mark(self.index, verdict(pb.OUTCOME_REJECT, reason))

    def release(self) -> None:
        """Not tried: deliver it again at once. Does not count."""
        self.batch.mark(self.index, RELEASE)

    def overloaded(self, reason: str | BaseException = "", *, after: float | None = None) -> None:
        """What is behind the handler asks for less: deliver it again later. Does not count."""
        self.batch.mark(self.index, verdict(pb.OUTCOME_OVERLOADED, reason, after))

    def __repr__(self) -> str:
        return f"<Record {self.id} attempt={self.attempt}>"
