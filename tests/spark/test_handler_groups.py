"""Which batches a handler's function gets together."""

from collections import deque
from collections.abc import Sequence

from offramp import Batch
from offramp.errors import Drained
from offramp.v1 import record_pb2 as pb
from spark_bridge.handler import GroupLimits, batch_groups


class NoSettlement:
    """Nothing may be settled here."""

    def settle(self, *_: object, **__: object) -> None:
        raise AssertionError

    def extend(self, *_: object) -> None:
        raise AssertionError


class QueuedBatches:
    """A consumer with these batches in its inbox, which then drains."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = deque(batches)

    def take(self, timeout: float | None = None) -> Batch | None:
        if not self._batches:
            raise Drained
        return self._batches.popleft()


def batch(
    records: int, closed_by: pb.ClosedBy = pb.CLOSED_BY_LINGER, attempt: int = 1, *, possibly_processed: bool = False
) -> Batch:
    message = pb.Batch(records=[pb.Record(value=b"x" * 100)] * records, closed_by=closed_by)
    if attempt > 1 or possibly_processed:
        message.redeliveries.add(first=0, count=records, attempt=attempt, possibly_processed=possibly_processed)
    return Batch(message, NoSettlement(), 0.0)  # type: ignore[arg-type]


def sizes(batches: Sequence[Batch], records: int = 10, size: int = 1 << 20) -> list[list[int]]:
    limits = GroupLimits(records, size, 0.0, None)
    return [[len(one) for one in group] for group in batch_groups(QueuedBatches(batches), limits)]


def test_batches_are_combined_up_to_the_limit_and_none_is_left_out() -> None:
    assert sizes([batch(4), batch(6), batch(3), batch(8), batch(1)]) == [[4, 6], [3], [8, 1]]


def test_one_batch_alone_may_exceed_the_limit() -> None:
    assert sizes([batch(40), batch(2)]) == [[40], [2]]


def test_bytes_count_too() -> None:
    assert sizes([batch(2), batch(2), batch(2)], size=450) == [[2, 2], [2]]


def test_a_batch_that_is_redelivered_after_a_failure_stays_alone() -> None:
    retry, probe = batch(1, pb.CLOSED_BY_RETRY), batch(1, pb.CLOSED_BY_PROBE)
    assert sizes([batch(2), retry, batch(3), probe, batch(1, attempt=2), batch(1)]) == [[2], [1], [3], [1], [1], [1]]


def test_a_batch_that_may_have_been_processed_but_has_not_failed_is_combined() -> None:
    # On a broker that does not tell first deliveries, and after a restart of the sidecar, this is every record.
    assert sizes([batch(2, possibly_processed=True), batch(3), batch(1, possibly_processed=True)]) == [[2, 3, 1]]
    retry = batch(1, pb.CLOSED_BY_RETRY, possibly_processed=True)
    assert sizes([batch(2), retry, batch(1, attempt=2, possibly_processed=True)]) == [[2], [1], [1]]
