"""Dead letters as they are stored in their topic."""

import pytest

from offramp.v1 import record_pb2
from sidecar.core.failures import dead_letter_topic
from spark_bridge.dead_letters import HEADERS, parse_dead_letters

VALUES = (
    *("orders/1/7", "orders", "1", "7", "", "1700000000123", "shop"),
    *("ValueError: no", "3", "w", "1700000009000", ""),
)


def dead_letter(**changed: str) -> record_pb2.Record:
    values = dict(zip(HEADERS, VALUES, strict=True)) | changed
    headers = [record_pb2.Header(name=name, value=value.encode()) for name, value in values.items()]
    own = record_pb2.Header(name="offramp-id", value=b"the app's own")
    return record_pb2.Record(key=b"k", value=b"v", headers=[own, *headers], lane=0, position=99)


def test_the_headers_are_those_that_a_sidecar_writes() -> None:
    assert HEADERS == dead_letter_topic.HEADERS


def test_a_dead_letter_is_the_record_as_it_was_and_why_it_is_there() -> None:
    (found,) = parse_dead_letters([dead_letter()], "shop")
    assert (found.id, found.topic, found.lane, found.position) == ("orders/1/7", "orders", 1, 7)
    assert (found.reason, found.attempts, found.worker) == ("ValueError: no", 3, "w")
    assert found.dead_lettered_ms == 1_700_000_009_000
    assert (found.record.key, found.record.value, found.record.timestamp_ms) == (b"k", b"v", 1_700_000_000_123)
    assert [one.value for one in found.record.headers] == [b"the app's own"]


@pytest.mark.parametrize("number", ["many", str(2**80), ""])
def test_records_of_others_are_skipped(number: str) -> None:
    others = [
        dead_letter(**{"offramp-group": "another"}),
        dead_letter(**{"offramp-lane": number}),
        record_pb2.Record(value=b"by hand"),
    ]
    assert parse_dead_letters(others, "shop") == []
