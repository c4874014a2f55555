"""Acks beyond a committed position are stored in Kafka's commit metadata, and are used only where they belong."""

import base64
import zlib
from collections.abc import Sequence

import pytest
from confluent_kafka import TopicCollection, TopicPartition

from sidecar.model.records import Commit, Lane, Run
from tests.brokers.harness import consuming, name, new_topic, numbered
from tests.brokers.kafka.harness import move_group, recreate_topic, running
from tests.event_loop import on_event_loop
from tests.servers.fixtures import NewKafka
from tests.servers.kafka import KafkaServer

#: the acks beyond position 3 of twelve records
POSITION, BEYOND = 3, (Run(5, 7), Run(9, 12))


def _topic(kafka: KafkaServer, records: int = 12) -> str:
    topic = new_topic(kafka)
    kafka.publish(topic, *numbered(records))
    return topic


async def _commit(kafka: KafkaServer, topic: str, group: str, commit: Commit) -> tuple[int, str]:
    """As a sidecar does; returns what Kafka stores then."""
    async with running(kafka) as broker, consuming(broker, topic, group=group) as consumer:
        await consumer.until(consumer.assigned)
        await consumer.commit(Lane(topic, 0), commit)
    offset, metadata = kafka.committed(group, topic, [0])[0]
    return offset, metadata or ""


def _write(kafka: KafkaServer, topic: str, group: str, offset: int, metadata: str) -> None:
    """As any other program could."""
    move_group(kafka, group, TopicPartition(topic, 0, offset, metadata))
    assert kafka.committed(group, topic, [0])[0] == (offset, metadata)


async def _settled(
    kafka: KafkaServer, topic: str, group: str, start: int, expected: Sequence[bytes]
) -> tuple[Run, ...]:
    """What counts as settled for a sidecar that starts now. It gets everything else from the start on."""
    async with running(kafka) as broker, consuming(broker, topic, group=group) as consumer:
        await consumer.until(consumer.assigned)
        assigned = consumer.assigned()[Lane(topic, 0)]
        assert assigned.start == start
        await consumer.take_values(expected)
        return assigned.settled


@on_event_loop
async def test_the_metadata_has_the_documented_format(kafka: KafkaServer) -> None:
    topic, group = _topic(kafka), name("group")
    offset, metadata = await _commit(kafka, topic, group, Commit(POSITION, BEYOND))
    assert offset == POSITION
    assert metadata == _crafted(kafka, topic)
    assert await _settled(kafka, topic, group, POSITION, [b"3", b"4", b"7", b"8"]) == BEYOND


@on_event_loop
async def test_the_metadata_of_a_commit_without_acks_beyond_names_only_its_topic(kafka: KafkaServer) -> None:
    topic, group = _topic(kafka), name("group")
    committed = await _commit(kafka, topic, group, Commit(7))
    assert committed == (7, _crafted(kafka, topic, position=7, beyond=()))
    assert await _settled(kafka, topic, group, 7, numbered(12)[7:]) == ()


@pytest.mark.parametrize("offset", [2, 4, 12])
@on_event_loop
async def test_metadata_beside_another_offset_is_not_used(kafka: KafkaServer, offset: int) -> None:
    """Tools that mirror a cluster copy it beside an offset that they have translated."""
    topic, group = _topic(kafka), name("group")
    _, metadata = await _commit(kafka, topic, group, Commit(POSITION, BEYOND))
    _write(kafka, topic, group, offset, metadata)
    assert await _settled(kafka, topic, group, offset, numbered(12)[offset:]) == ()


@pytest.mark.parametrize("beyond", [BEYOND, ()])
@on_event_loop
async def test_a_position_of_a_topic_that_was_recreated_is_not_used(
    kafka: KafkaServer, beyond: tuple[Run, ...]
) -> None:
    topic, group = _topic(kafka), name("group")
    _, metadata = await _commit(kafka, topic, group, Commit(POSITION, beyond))
    recreate_topic(kafka, topic)
    kafka.publish(topic, *numbered(12))
    _write(kafka, topic, group, POSITION, metadata)
    assert await _settled(kafka, topic, group, 0, numbered(12)) == ()


@on_event_loop
async def test_metadata_of_another_cluster_is_not_used(kafka: KafkaServer) -> None:
    topic, group = _topic(kafka), name("group")
    _write(kafka, topic, group, POSITION, _crafted(kafka, topic, cluster="another-cluster-of-22c"))
    assert await _settled(kafka, topic, group, POSITION, numbered(12)[POSITION:]) == ()


@on_event_loop
async def test_metadata_that_reaches_beyond_the_end_of_the_log_is_not_used(kafka: KafkaServer) -> None:
    """The log was truncated: records that will be written there are new."""
    topic, group = _topic(kafka, records=11), name("group")
    _write(kafka, topic, group, POSITION, _crafted(kafka, topic))
    assert await _settled(kafka, topic, group, POSITION, numbered(11)[POSITION:]) == ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: "what another program keeps here",
        lambda text: text.replace("offramp:1:", "offramp:2:"),
        lambda text: text[:40] + ("A" if text[40] != "A" else "B") + text[41:],
    ],
    ids=["empty", "of another program", "of another version", "a letter changed"],
)
@on_event_loop
async def test_foreign_and_damaged_metadata_skips_nothing(kafka: KafkaServer, damage: object) -> None:
    topic, group = _topic(kafka), name("group")
    _write(kafka, topic, group, POSITION, damage(_crafted(kafka, topic)))  # type: ignore[operator]
    assert await _settled(kafka, topic, group, POSITION, numbered(12)[POSITION:]) == ()


@on_event_loop
async def test_if_not_all_acks_fit_the_earliest_are_stored_and_the_rest_is_delivered_again(kafka: KafkaServer) -> None:
    topic, group = _topic(kafka, records=8000), name("group")
    beyond = tuple(Run(start, start + 1) for start in range(1, 7999, 2))
    offset, metadata = await _commit(kafka, topic, group, Commit(0, beyond))
    assert offset == 0
    assert len(metadata) < 4096
    settled = await _settled(kafka, topic, group, 0, numbered(8000)[::2])
    assert len(settled) > 500
    assert settled == beyond[: len(settled)]


@on_event_loop
async def test_a_broker_that_accepts_less_metadata_gets_the_position_alone(new_kafka: NewKafka) -> None:
    kafka = new_kafka(properties={"offset.metadata.max.bytes": "60"})
    topic, group = _topic(kafka), name("group")
    assert await _commit(kafka, topic, group, Commit(POSITION, BEYOND)) == (POSITION, "")
    assert await _settled(kafka, topic, group, POSITION, numbered(12)[POSITION:]) == ()


def _crafted(
    kafka: KafkaServer, topic: str, cluster: str = "", *, position: int = POSITION, beyond: tuple[Run, ...] = BEYOND
) -> str:
    """The metadata of a commit, as docs/brokers/kafka.md describes it."""
    described = kafka.admin.describe_cluster().result(20)
    topics = kafka.admin.describe_topics(TopicCollection([topic]))
    names = (cluster or described.cluster_id, str(topics[topic].result(20).topic_id))
    body = b"".join(bytes([len(one)]) + one.encode() for one in names) + bytes([position])
    at = position
    for start, stop in beyond:
        body += bytes([start - at, stop - start])
        at = stop
    body += zlib.crc32(body).to_bytes(4, "big")
    return "offramp:1:" + base64.urlsafe_b64encode(body).decode().rstrip("=")
