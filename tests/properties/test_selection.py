"""When a batch is complete, against a model that adds records one by one."""

from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.scheduling.selection import Batching
from sidecar.model.records import ClosedBy
from sidecar.settings import BatchSettings, Bytes, Seconds


@given(
    records=st.integers(1, 20),
    size=st.integers(1, 500),
    linger=st.floats(0.0, 5.0),
    arrivals=st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 60)), min_size=1, max_size=30),
)
def test_a_batch_is_complete_as_soon_as_one_limit_is_met_and_not_before(
    records: int, size: int, linger: float, arrivals: list[tuple[float, int]]
) -> None:
    """Records arrive one after the other; the batch is checked after each."""
    batching = Batching(BatchSettings(records=records, bytes=Bytes(size), linger=Seconds(linger)))
    now = oldest = arrivals[0][0]
    ready_bytes = 0
    for ready, (after, bytes_) in enumerate(arrivals, 1):
        now += after if ready > 1 else 0.0
        ready_bytes += bytes_
        why = batching.closed_by(ready, ready_bytes, oldest, now)
        if why is None:
            assert ready < records
            assert ready_bytes < size
            assert now < oldest + linger
        else:
            assert {
                ClosedBy.RECORDS: ready >= records,
                ClosedBy.BYTES: ready_bytes >= size,
                ClosedBy.LINGER: now >= oldest + linger,
            }[why]
            break


@given(st.integers(1, 100), st.integers(1, 100), st.floats(0.0, 1e6))
def test_without_a_linger_nothing_waits(records: int, size: int, now: float) -> None:
    assert Batching(BatchSettings(linger=Seconds(0.0))).closed_by(records, size, now, now) is not None
