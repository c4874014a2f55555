"""Joining a group: where it starts, and which lanes it gets."""

from sidecar.model.records import Assigned, Commit, Lane, Start
from tests.brokers.harness import Sandbox, numbered, scenario, scenario_with


class Opening:
    @scenario
    async def test_every_lane_is_assigned_before_its_records_come(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=3)
        for lane in range(3):
            await sandbox.publish(topic, b"value", lane=lane)
        consumer = await sandbox.consume(topic)
        await consumer.take(3)
        known: set[Lane] = set()
        for polled in consumer.polls:
            known.update(event.lane for event in polled.events if isinstance(event, Assigned))
            assert {chunk.lane for chunk in polled.chunks} <= known
        assert known == {Lane(topic, number) for number in range(3)}

    @scenario
    async def test_a_new_group_at_earliest_gets_everything(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        await sandbox.publish(topic, *numbered(5))
        consumer = await sandbox.consume(topic, start=Start.EARLIEST)
        assert await consumer.take(5) == numbered(5)

    @scenario_with("groups_are_independent")
    async def test_a_new_group_at_latest_gets_only_later_records(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        await sandbox.publish(topic, b"old")
        consumer = await sandbox.consume(topic, start=Start.LATEST)
        await consumer.until(consumer.assigned)
        await sandbox.publish(topic, b"new")
        assert await consumer.take(1) == [b"new"]

    @scenario_with("groups_are_independent")
    async def test_latest_is_pinned_when_the_group_is_first_opened(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        await sandbox.publish(topic, b"old")
        consumer = await sandbox.consume(topic, start=Start.LATEST)
        await consumer.until(consumer.assigned)
        await sandbox.restart()
        await sandbox.publish(topic, b"while away")
        consumer = await sandbox.consume(topic, start=Start.LATEST)
        assert await consumer.take(1) == [b"while away"]

    @scenario
    async def test_a_known_group_continues_where_it_was_whatever_start_says(self, sandbox: Sandbox) -> None:
        topic, positions, consumer = await sandbox.consumed(3)
        await consumer.commit(Lane(topic, 0), Commit(positions[1]))
        await consumer.close()
        consumer = await sandbox.consume(topic, start=Start.LATEST)
        assert await consumer.take(2) == [b"1", b"2"]

    @scenario_with("creates_topics")
    async def test_missing_topics_are_created(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        consumer = await sandbox.consume(topic, f"{topic}.missing", own_topics={f"{topic}.own": 3})
        await consumer.until(lambda: Lane(f"{topic}.own", 2) in consumer.assigned())
        assert Lane(f"{topic}.own", 3) not in consumer.assigned()
        await sandbox.publish(f"{topic}.missing", b"value")
        assert await consumer.take(1) == [b"value"]

    @scenario
    async def test_a_topic_that_exists_keeps_its_lanes(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        await sandbox.broker.ensure_topic(topic, 5)
        assert set(await sandbox.broker.lane_ends(topic)) == {Lane(topic, 0), Lane(topic, 1)}

    @scenario
    async def test_lanes_of_a_known_group_are_not_assigned_as_first(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        consumer = await sandbox.consume(topic)
        await consumer.until(lambda: len(consumer.assigned()) == 2)
        await sandbox.restart()
        consumer = await sandbox.consume(topic)
        await consumer.until(lambda: len(consumer.assigned()) == 2)
        assert not any(assigned.first for assigned in consumer.assigned().values())
