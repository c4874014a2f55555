"""Ranges of which the broker has removed a part: from a server that answers as the protocol says, and from a Kafka."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from confluent_kafka import TopicPartition

from offramp.channel import Access
from offramp.v1 import log_pb2 as pb
from offramp.v1 import record_pb2
from spark_bridge.columns import SCHEMA
from spark_bridge.errors import DataLoss
from spark_bridge.positions import Lane
from spark_bridge.reading import Range, RangeReader
from tests.servers.kafka import KafkaServer
from tests.spark.stage import CLICKS, Stage

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
        self.asked: list[int] = []

    def read(self, request: pb.ReadRangeRequest, context: grpc.ServicerContext) -> Iterator[pb.ReadRangeResponse]:
        self.asked.append(request.start)
        if request.start < self.first:
            context.set_trailing_metadata((("offramp-first-position", str(self.first)),))
            context.abort(grpc.StatusCode.OUT_OF_RANGE, f"{CLICKS}/0 begins at {self.first}")
        for number, position in enumerate(range(request.start, min(request.until, self.end))):
            if self.breaking and number == 2:
                self.breaking -= 1
                context.abort(grpc.StatusCode.UNAVAILABLE, "stopping")
            yield pb.ReadRangeResponse(records=[record_pb2.Record(position=position, value=b"x")])


@contextmanager
def serving(log: Log) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    method = grpc.unary_stream_rpc_method_handler(
        log.read, pb.ReadRangeRequest.FromString, pb.ReadRangeResponse.SerializeToString
    )
    service = grpc.method_handlers_generic_handler("offramp.v1.LogService", {"ReadRange": method})
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


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


def test_a_read_that_breaks_goes_on_where_it_was() -> None:
    log = Log(0, 10)
    log.breaking = 3
    with serving(log) as address:
        assert positions(reader(address, fail=True), 0, 10) == list(range(10))
    assert log.asked == [0, 2, 4, 6]


def test_a_range_that_ends_behind_the_lane_ends_with_the_lane() -> None:
    with serving(Log(0, 4)) as address:
        assert positions(reader(address, fail=True), 0, 9) == [0, 1, 2, 3]


@pytest.mark.parametrize("fail", [True, False])
def test_what_kafka_removed_is_named_or_skipped(tmp_path: Path, kafka: KafkaServer, fail: bool) -> None:
    topic = f"clicks-{uuid.uuid4().hex[:8]}"
    kafka.make_topic(topic, 1)
    kafka.publish(topic, *(b"%d" % n for n in range(10)))
    (done,) = kafka.admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    assert done.result(30).low_watermark == 6
    stage = Stage(
        tmp_path / "stage",
        brokers={"kafka": {"type": "kafka", "servers": [kafka.bootstrap]}},
        subscriptions={CLICKS: {"broker": "kafka", "topics": [topic], "mode": "ranges"}},
    )
    with stage.sidecar:
        source = reader(stage.address, fail=fail, timeout=30.0)
        if fail:
            with pytest.raises(DataLoss, match=rf"{topic}/0: positions 2 to 5 are gone"):
                positions(source, 2, 9, Lane(topic, 0))
        else:
            assert positions(source, 2, 9, Lane(topic, 0)) == [6, 7, 8]
