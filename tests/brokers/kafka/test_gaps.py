"""Positions without records: compaction, transactions, retention."""

import asyncio
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from offramp import Batch, Worker
from sidecar.brokers.base import Advanced
from sidecar.brokers.kafka.options import OutOfRange
from sidecar.model.records import Lane
from tests.brokers.harness import consuming, name, new_topic, numbered
from tests.brokers.kafka.harness import move_group, open_transaction, running, transaction
from tests.e2e.harness import Sidecar, eventually
from tests.e2e.kafka.snapshot import progress, read
from tests.event_loop import on_event_loop
from tests.servers.kafka import QUIET, KafkaServer
from tests.servers.process import await_


@on_event_loop
async def test_aborted_records_are_never_delivered_and_committed_ones_are(kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    transaction(kafka, topic, *numbered(5, "a"))
    transaction(kafka, topic, *numbered(5, "b"), commit=False)
    kafka.publish(topic, b"between")
    transaction(kafka, topic, *numbered(5, "c"))
    async with running(kafka) as broker, consuming(broker, topic, group=name("group")) as consumer:
        assert await consumer.take(11) == [*numbered(5, "a"), b"between", *numbered(5, "c")]
        await consumer.stays_silent()


@on_event_loop
async def test_records_of_an_open_transaction_wait_for_its_end(kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    producer = open_transaction(kafka, topic, b"within")
    kafka.publish(topic, b"after")
    async with running(kafka) as broker, consuming(broker, topic, group=name("group")) as consumer:
        await consumer.until(consumer.assigned)
        await consumer.stays_silent()
        await asyncio.to_thread(producer.commit_transaction, 20)
        assert await consumer.take(2) == [b"within", b"after"]


@on_event_loop
async def test_a_position_within_an_open_transaction_is_not_taken_for_one_of_another_log(kafka: KafkaServer) -> None:
    """Kafka's own tools move groups to the end of the log, whether or not its transactions are committed."""
    topic, group = new_topic(kafka), name("group")
    kafka.publish(topic, b"seen")
    producer = open_transaction(kafka, topic, b"within")
    move_group(kafka, group, TopicPartition(topic, 0, 2))
    async with running(kafka) as broker, consuming(broker, topic, group=group) as consumer:
        await consumer.until(consumer.assigned)
        await asyncio.to_thread(producer.commit_transaction, 20)
        kafka.publish(topic, b"after")
        assert await consumer.take(1) == [b"after"]


def _sidecar(folder: Path, kafka: KafkaServer, topic: str, **settings: object) -> Sidecar:
    """Its group has the name of the topic."""
    broker = {"type": "kafka", "servers": [kafka.bootstrap], **settings}
    subscription = {"broker": "kafka", "topics": [topic], "group": topic, "commit_every": "20ms"}
    return Sidecar(folder, subscriptions={"orders": subscription}, brokers={"kafka": broker})


def _work_until_done(sidecar: Sidecar, kafka: KafkaServer, topic: str, end: int | None = None) -> list[bytes]:
    """Acks all records and returns their values, when the group is at the end and the status reports no lag. `end` is
    that position, for a topic whose last marker Kafka may still have to write."""
    got: list[bytes] = []

    def handle(batch: Batch) -> None:
        got.extend(record.value or b"" for record in batch)

    worker = Worker("orders", handle, address=sidecar.target)
    thread = threading.Thread(target=worker.run)
    thread.start()

    def is_done() -> bool:
        found = progress(kafka, topic, topic, 1)
        return found.is_done and end in (None, found.ends[0])

    try:
        eventually(is_done, "the group is at the end")
        eventually(lambda: [lane.lag for lane in sidecar.status().lanes if not lane.parked] == [0], "the lag is zero")
    finally:
        worker.drain()
        thread.join(20)
    return got


def test_the_lag_reaches_zero_where_a_topic_ends_with_a_marker(kafka: KafkaServer, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    transaction(kafka, topic, *numbered(5))
    with _sidecar(tmp_path, kafka, topic) as sidecar:
        assert _work_until_done(sidecar, kafka, topic, 6) == numbered(5)
        transaction(kafka, topic, b"aborted", commit=False)
        # The end is higher now, and there is nothing to ack before it.
        assert _work_until_done(sidecar, kafka, topic, 8) == []
        transaction(kafka, topic, b"more")
        assert _work_until_done(sidecar, kafka, topic, 10) == [b"more"]


def test_a_compacted_topic_is_consumed_to_its_end(kafka: KafkaServer, tmp_path: Path) -> None:
    topic = name("topic")
    kafka.make_topic(
        topic,
        cleanup_policy="compact",
        segment_ms="200",
        min_cleanable_dirty_ratio="0.001",
        delete_retention_ms="0",
        max_compaction_lag_ms="500",
    )
    keys = [b"%d" % key for key in range(10)]
    for number in range(3):
        kafka.publish(topic, *[b"%s-%d" % (key, number) for key in keys], keys=keys)

    def is_compacted() -> bool:
        # The active segment is never compacted: another record starts a new one.
        kafka.publish(topic, b"more", keys=[b"more"])
        time.sleep(0.3)
        return sum(message.key() != b"more" for message in read(kafka, topic)) == 10

    await_(is_compacted, "it is compacted")
    with _sidecar(tmp_path, kafka, topic) as sidecar:
        got = _work_until_done(sidecar, kafka, topic)
    assert {value for value in got if value != b"more"} == {b"%s-2" % key for key in keys}


@pytest.mark.parametrize("out_of_range", OutOfRange)
@on_event_loop
async def test_records_that_retention_removes_under_a_paused_lane_are_counted(
    kafka: KafkaServer, out_of_range: OutOfRange
) -> None:
    topic = new_topic(kafka)
    kafka.publish(topic, *numbered(20_000))
    lane = Lane(topic, 0)
    async with (
        running(kafka, out_of_range=out_of_range) as broker,
        consuming(broker, topic, group=name("group")) as consumer,
    ):
        await consumer.take(10, max_records=10)
        await consumer.source.pause([lane])
        await consumer.poll(timeout=0.05)
        read_to = consumer.records[-1].position + 1
        consumer.forget()
        kafka.admin.delete_records([TopicPartition(topic, 0, 19_990)])
        await_(lambda: _start(kafka, topic) == 19_990, "the records are removed")
        await consumer.source.resume([lane])
        if out_of_range is OutOfRange.EARLIEST:
            await consumer.until(lambda: consumer.values[-1:] == [b"19999"])
            end = 19_990
        else:
            await consumer.until(lambda: [e for e in consumer.events if isinstance(e, Advanced) and e.lost])
            end = 20_000
            kafka.publish(topic, b"new")
            await consumer.until(lambda: consumer.values[-1:] == [b"new"])
        lost = sum(event.lost for event in consumer.events if isinstance(event, Advanced))
        delivered = [r.position for r in consumer.records if r.position < end]
        # Records that were fetched before may come; all others are counted as lost.
        assert delivered == [*range(read_to, read_to + len(delivered))]
        assert read_to + len(delivered) + lost == end


def test_a_sidecar_reports_how_many_records_retention_removed_while_it_was_down(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    topic = new_topic(kafka)
    kafka.publish(topic, *numbered(10))
    with _sidecar(tmp_path, kafka, topic) as sidecar:
        _work_until_done(sidecar, kafka, topic)
    kafka.publish(topic, *numbered(100, "more-"))
    kafka.admin.delete_records([TopicPartition(topic, 0, 70)])
    await_(lambda: _start(kafka, topic) == 70, "the records are removed")
    with _sidecar(tmp_path, kafka, topic) as sidecar:
        assert _work_until_done(sidecar, kafka, topic) == numbered(100, "more-")[60:]
        event = sidecar.event("records were removed before they could be read")
        assert (event["records"], event["level"]) == (60, "warning")
        assert sidecar.status().counters.removed == 60
        assert sidecar.metric("offramp_removed_records_total") == 60


def _start(kafka: KafkaServer, topic: str) -> int:
    consumer = Consumer({**kafka.settings(), "group.id": "offramp-tests-start"}, logger=QUIET)
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)
    consumer.close()
    return low
