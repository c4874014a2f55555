"""Ranges of which the broker has removed a part: from a server that answers as the protocol says, and from a Kafka."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from confluent_kafka import TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from offramp.channel import Access
from offramp.errors import Incompatible
from offramp.v1 import log_pb2 as pb
from offramp.v1 import record_pb2
from spark_bridge.columns import SCHEMA
from spark_bridge.errors import DataLoss
from spark_bridge.positions import Lane
from spark_bridge.range_reader import Range, RangeReader
from spark_bridge.stream_reader import StreamReader
from tests.brokers.harness import new_topic, numbered
from tests.brokers.kafka.harness import open_transaction, transaction
from tests.error_details import error_details
from tests.servers.kafka import KafkaServer
from tests.servers.process import await_
from tests.spark import fake_log_service
from tests.spark.environment import CLICKS, on_kafka

LANE = Lane(CLICKS, 0)


def reader(address: str, *, fail: bool, timeout: float = 5.0) -> RangeReader:
    return RangeReader(
        access=Access(address=address),
        subscription=CLICKS,
        schema=SCHEMA,
        max_message_bytes=4 << 20,
        fail_on_data_loss=fail,
        timeout=timeout,
    )


def positions(source: RangeReader, start: int, until: int, lane: Lane = LANE) -> list[int]:
    return [row["position"] for batch in source.read(Range(lane, start, until)) for row in batch.to_pylist()]


class Log:
    """A lane of which the records before `first` are removed. Each call gives two messages, then fails if told so."""

    def __init__(self, first: int, end: int) -> None:
        self.first, self.end = first, end
        self.breaking = 0
        self.breaks_with = grpc.StatusCode.UNAVAILABLE, "STOPPING"
        self.tells = True
        self.asked: list[int] = []

    def read(self, request: pb.ReadRangeRequest, context: grpc.ServicerContext) -> Iterator[pb.ReadRangeResponse]:
        self.asked.append(request.start)
        ends = (("offramp-first-position", str(self.first)), ("offramp-end-position", str(self.end)))
        ends = ends if self.tells else ()

        def abort(code: grpc.StatusCode, reason: str, text: str) -> None:
            details = error_details(code, text, reason, retryable=code is grpc.StatusCode.UNAVAILABLE)
            context.set_trailing_metadata((*ends, *details))
            context.abort(code, text)

        context.set_trailing_metadata(ends)
        if request.start > self.end:
            abort(grpc.StatusCode.OUT_OF_RANGE, "OUT_OF_RANGE", f"{CLICKS}/0 ends at {self.end}")
        if request.start < self.first:
            abort(grpc.StatusCode.OUT_OF_RANGE, "OUT_OF_RANGE", f"{CLICKS}/0 begins at {self.first}")
        for number, position in enumerate(range(request.start, min(request.until, self.end))):
            if self.breaking and number == 2:
                self.breaking -= 1
                abort(*self.breaks_with, "stopping")
            yield pb.ReadRangeResponse(records=[record_pb2.Record(position=position, value=b"x")])


def serving(log: Log) -> AbstractContextManager[str]:
    read = grpc.unary_stream_rpc_method_handler(
        log.read, pb.ReadRangeRequest.FromString, pb.ReadRangeResponse.SerializeToString
    )
    return fake_log_service.serving(ReadRange=read)


def test_what_was_removed_is_named() -> None:
    with serving(Log(4, 10)) as address, pytest.raises(DataLoss) as caught:
        positions(reader(address, fail=True), 1, 8)
    assert "clicks/0: positions 1 to 3 are gone" in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)


def test_what_was_removed_is_skipped_if_told_so() -> None:
    with serving(Log(4, 10)) as address:
        source = reader(address, fail=False)
        assert positions(source, 1, 8) == [4, 5, 6, 7]
        assert positions(source, 0, 3) == [], "all of it is gone"


@pytest.mark.parametrize(
    ("status", "reason"),
    [(grpc.StatusCode.UNAVAILABLE, "STOPPING"), (grpc.StatusCode.RESOURCE_EXHAUSTED, "UNREAD_STREAM")],
)
def test_a_read_that_breaks_or_was_too_slow_for_the_sidecar_goes_on_where_it_was(
    status: grpc.StatusCode, reason: str
) -> None:
    log = Log(0, 10)
    log.breaking, log.breaks_with = 3, (status, reason)
    with serving(log) as address:
        assert positions(reader(address, fail=True), 0, 10) == list(range(10))
    assert log.asked == [0, 2, 4, 6]


def test_a_loss_that_is_told_behind_what_was_read_is_named_or_read_on_from_there() -> None:
    log = Log(0, 10)
    log.breaks_with = grpc.StatusCode.OUT_OF_RANGE, "OUT_OF_RANGE"
    with serving(log) as address:
        log.breaking = 1
        with pytest.raises(DataLoss, match=r"clicks/0: a part is gone: .*: stopping. Set failOnDataLoss to false"):
            positions(reader(address, fail=True), 0, 10)
        log.breaking = 3
        assert positions(reader(address, fail=False), 0, 10) == list(range(10))
    assert log.asked == [0, 0, 2, 4, 6]


def test_a_lane_that_was_recreated_is_named_as_such_or_skipped() -> None:
    with serving(Log(0, 4)) as address:
        said = r"clicks/0 was recreated: it ends at 4, and 10 to 19 were to be read"
        with pytest.raises(DataLoss, match=said):
            positions(reader(address, fail=True), 10, 20)
        assert positions(reader(address, fail=False), 10, 20) == []


def test_a_planned_range_that_ends_behind_its_lane_has_lost_something() -> None:
    with serving(Log(0, 4)) as address:
        with pytest.raises(DataLoss, match=r"clicks/0 ends at 4 by now, and was to be read to 8: .* recreated"):
            positions(reader(address, fail=True), 0, 9)
        with pytest.raises(DataLoss, match="clicks/0 ends at 4 by now"):
            positions(reader(address, fail=True), 4, 9)
        assert positions(reader(address, fail=False), 0, 9) == [0, 1, 2, 3]


def test_a_range_that_nobody_planned_ends_with_the_lane() -> None:
    with serving(Log(0, 4)) as address:
        assert positions(replace(reader(address, fail=True), planned=False), 0, 9) == [0, 1, 2, 3]


def test_a_sidecar_that_does_not_say_where_a_range_ended_is_too_old() -> None:
    log = Log(0, 10)
    log.tells = False
    with serving(log) as address, pytest.raises(Incompatible, match="older than this bridge"):
        positions(reader(address, fail=True), 0, 9)


def test_markers_and_compacted_records_at_the_end_are_no_loss(tmp_path: Path, kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    for number in range(3):
        transaction(kafka, topic, b"%d" % number)
    transaction(kafka, topic, b"never", commit=False)
    environment = on_kafka(tmp_path, kafka, topic)
    with environment.sidecar:
        source = StreamReader(environment.options(timeout="30s"), SCHEMA)
        start = source.initialOffset()
        # Kafka answers before it writes a marker. The last positions are an aborted record and two of those.
        await_(lambda: source.latestOffset(start, ReadAllAvailable())["lanes"] == {f"{topic}/0": 8}, "the end is seen")
        end = source.latestOffset(start, ReadAllAvailable())
        rows = [row for one in source.partitions(start, end) for batch in source.read(one) for row in batch.to_pylist()]
        assert [row["position"] for row in rows] == [0, 2, 4]


def test_a_reader_within_an_open_transaction_keeps_its_place_also_where_another_lane_was_recreated(
    tmp_path: Path, kafka: KafkaServer
) -> None:
    topic = new_topic(kafka, 2)
    kafka.publish(topic, b"seen")
    producer = open_transaction(kafka, topic, b"within")
    with (environment := on_kafka(tmp_path, kafka, topic)).sidecar:
        source = StreamReader(environment.options(timeout="30s", failOnDataLoss="false"), SCHEMA)
        start = source.initialOffset()
        within = {**start, "lanes": {f"{topic}/0": 2, f"{topic}/1": 0}}
        assert source.latestOffset(within, ReadAllAvailable()) is within
        anew = {**start, "lanes": {f"{topic}/0": 2, f"{topic}/1": 99}}
        assert source.latestOffset(anew, ReadAllAvailable())["lanes"] == {f"{topic}/0": 2, f"{topic}/1": 0}
    producer.abort_transaction(30)


@pytest.mark.parametrize(
    ("first", "end", "said", "left"),
    [
        (0, 4, "/0 ends at 4 by now, and was to be read to 8", [2, 3]),
        (6, 10, "/0: positions 2 to 5 are gone", [6, 7, 8]),
    ],
    ids=["recreated and shorter", "removed"],
)
def test_what_is_no_longer_in_kafka_is_named_or_skipped(
    tmp_path: Path, kafka: KafkaServer, first: int, end: int, said: str, left: list[int]
) -> None:
    topic = new_topic(kafka)
    kafka.publish(topic, *numbered(end))
    if first:
        (done,) = kafka.admin.delete_records([TopicPartition(topic, 0, first)]).values()
        assert done.result(30).low_watermark == first
    with (environment := on_kafka(tmp_path, kafka, topic)).sidecar:
        with pytest.raises(DataLoss, match=f"{topic}{said}"):
            positions(reader(environment.address, fail=True, timeout=30.0), 2, 9, Lane(topic, 0))
        assert positions(reader(environment.address, fail=False, timeout=30.0), 2, 9, Lane(topic, 0)) == left
