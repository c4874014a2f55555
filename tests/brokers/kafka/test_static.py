"""Static members on a real Kafka: pods that keep their name over a restart."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from sidecar.brokers.base import Lost, Revoked
from sidecar.brokers.kafka import KafkaBroker
from sidecar.brokers.kafka.options import GroupProtocol
from sidecar.model.errors import LaneGone, Refused, Unavailable
from sidecar.model.records import Assigned, Commit, Lane
from tests.brokers.harness import Consumer, consuming, name, new_topic, numbered
from tests.brokers.kafka.harness import BOTH, running, shared_out
from tests.event_loop import on_event_loop
from tests.servers.kafka import KafkaServer


@BOTH
@on_event_loop
async def test_a_static_member_that_returns_gets_its_lanes_back_and_disturbs_nobody(
    kafka: KafkaServer, protocol: GroupProtocol
) -> None:
    topic, group = new_topic(kafka, 4), name("group")
    patient: dict[str, Any] = {"group_protocol": protocol, "properties": {"session.timeout.ms": "45000"}}
    _raise_session_timeout(kafka, group)
    async with (
        running(kafka, group_instance_id="pod-0", **patient) as stays,
        consuming(stays, topic, group=group) as first,
    ):
        await first.until(lambda: len(first.assigned()) == 4)
        async with running(kafka, group_instance_id="pod-1", **patient) as leaves:
            second = await Consumer.open(leaves, topic, group=group)
            before = await shared_out(first, second, 4)
            first.forget()
            await second.close()
        async with (
            running(kafka, group_instance_id="pod-1", **patient) as back,
            consuming(back, topic, group=group) as third,
        ):
            while len(third.assigned()) < 2:
                await asyncio.gather(first.poll(timeout=0.05), third.poll(timeout=0.05))
            assert set(third.assigned()) == before
            assert not [event for event in first.events if isinstance(event, Assigned | Revoked | Lost)]


@on_event_loop
async def test_a_static_member_whose_name_another_pod_takes_reports_it_and_commits_nothing_more(
    kafka: KafkaServer,
) -> None:
    topic, group = name("topic"), name("group")
    async with _two_of_a_name(kafka, topic, group, GroupProtocol.CLASSIC) as (first, after):
        await first.take(10)
        await first.commit(Lane(topic, 0), Commit(3))
        async with consuming(after, topic, group=group) as second:
            await second.take(7)
            with pytest.raises(Refused, match="another pod has the same `group_instance_id`"):
                await first.until(lambda: False)
            with pytest.raises(LaneGone):
                await first.commit(Lane(topic, 0), Commit(10))
    assert kafka.committed(group, topic, [0])[0][0] == 3


@on_event_loop
async def test_a_static_member_whose_name_is_taken_waits_until_it_is_free(kafka: KafkaServer) -> None:
    topic, group = name("topic"), name("group")
    async with _two_of_a_name(kafka, topic, group, GroupProtocol.CONSUMER) as (first, after):
        await first.take(10)
        async with consuming(after, topic, group=group) as second:
            with pytest.raises(Unavailable, match="another pod has the same `group_instance_id`"):
                await second.until(lambda: False)
            await first.close()
            while len(second.values) < 10:
                await _poll_if_it_can(second)
            assert second.values == numbered(10)


def _raise_session_timeout(kafka: KafkaServer, group: str) -> None:
    """For the protocol `consumer`; with the other one the member sets it itself."""
    entry = ConfigEntry("consumer.session.timeout.ms", "45000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    for answer in kafka.admin.incremental_alter_configs([resource]).values():
        answer.result(20)


@asynccontextmanager
async def _two_of_a_name(
    kafka: KafkaServer, topic: str, group: str, protocol: GroupProtocol
) -> AsyncIterator[tuple[Consumer, KafkaBroker]]:
    """A pod that consumes ten records, and another of the same name that does not consume yet."""
    kafka.make_topic(topic)
    kafka.publish(topic, *numbered(10))
    same: dict[str, Any] = {"group_protocol": protocol, "group_instance_id": "pod-0"}
    async with (
        running(kafka, **same) as before,
        running(kafka, **same) as after,
        consuming(before, topic, group=group) as first,
    ):
        yield first, after


async def _poll_if_it_can(consumer: Consumer) -> None:
    try:
        await consumer.poll()
    except Unavailable:
        await asyncio.sleep(0.1)
