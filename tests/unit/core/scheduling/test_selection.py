"""When a batch is complete."""

from sidecar.core.scheduling.selection import Batching
from sidecar.model.records import ClosedBy
from sidecar.settings import BatchSettings, Bytes, Seconds

batching = Batching(BatchSettings(records=10, bytes=Bytes(2_000), linger=Seconds(0.5)))


def test_enough_records_close_a_batch() -> None:
    assert batching.closed_by(10, 1, oldest=0.0, now=0.0) is ClosedBy.RECORDS


def test_enough_bytes_close_a_batch() -> None:
    assert batching.closed_by(1, 2_000, oldest=0.0, now=0.0) is ClosedBy.BYTES


def test_time_closes_a_batch_counted_from_its_first_record() -> None:
    assert batching.closed_by(1, 1, oldest=7.0, now=7.5) is ClosedBy.LINGER


def test_an_incomplete_batch_waits_for_more() -> None:
    assert batching.closed_by(9, 1_999, oldest=7.0, now=7.4) is None


def test_without_a_linger_what_is_there_goes() -> None:
    assert Batching(BatchSettings()).closed_by(1, 1, oldest=7.0, now=7.0) is ClosedBy.LINGER
