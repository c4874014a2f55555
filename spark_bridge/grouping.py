"""Which batches go to the function together."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from offramp import Batch
from offramp.v1 import record_pb2 as pb


class Taking(Protocol):
    """A consumer, as far as it matters here."""

    def take(self, timeout: float | None = None) -> Batch | None:
        """The next batch; None if none came in time, or if none will come."""


@dataclass(frozen=True)
class Limits:
    #: records and bytes at which a group is full; one batch alone may exceed them
    records: int
    bytes: int
    #: seconds that a group waits for more, from its first batch on
    linger: float
    #: seconds without any batch after which there are no more groups; None: never
    idle: float | None


def groups(consumer: Taking, limits: Limits) -> Iterator[list[Batch]]:
    """Batches in the order in which they came, until the consumer drains.

    What comes back after a failure travels alone: in company it would fail its neighbours, whose attempts would be
    used up for something that is not theirs.
    """
    held: Batch | None = None
    while True:
        first, held = held or consumer.take(limits.idle), None
        if first is None:
            return
        group = [first]
        records, size = len(first), first.message.ByteSize()
        ends = time.monotonic() + limits.linger
        while _may_have_company(group[-1]) and records < limits.records and size < limits.bytes:
            batch = consumer.take(max(0.0, ends - time.monotonic()))
            if batch is None:
                break
            records += len(batch)
            size += batch.message.ByteSize()
            if not _may_have_company(batch) or records > limits.records or size > limits.bytes:
                held = batch
                break
            group.append(batch)
        yield group


def _may_have_company(batch: Batch) -> bool:
    message = batch.message
    # Some brokers flag every record as possibly processed: that alone is no failure.
    failed = any(one.attempt > 1 for one in message.redeliveries)
    return not failed and message.closed_by not in (pb.CLOSED_BY_RETRY, pb.CLOSED_BY_PROBE)
