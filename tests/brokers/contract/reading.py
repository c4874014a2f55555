"""Reading and asking without a group."""

import pytest

from sidecar.model.errors import NotFound
from sidecar.model.records import Lane, Run
from tests.brokers.harness import Sandbox, numbered, read, scenario, scenario_with


class Reading:
    @scenario_with("positions_are_stable")
    async def test_the_ends_of_lanes_are_known(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        at = await sandbox.publish(topic, *numbered(7), lane=1)
        ends = await sandbox.broker.lane_ends(topic)
        assert set(ends) == {Lane(topic, 0), Lane(topic, 1)}
        assert (ends[Lane(topic, 1)].start, ends[Lane(topic, 1)].end) == (at[0], at[-1] + 1)
        consumer = await sandbox.consume(topic)
        await consumer.take(7)
        assert (await consumer.source.ends())[Lane(topic, 1)] == ends[Lane(topic, 1)]

    @scenario_with("positions_are_stable")
    async def test_the_end_of_the_log_is_the_end_of_a_fully_readable_lane(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        at = await sandbox.publish(topic, *numbered(7), lane=1)
        assert await sandbox.broker.log_end(Lane(topic, 1)) == at[-1] + 1
        with pytest.raises(NotFound):
            await sandbox.broker.log_end(Lane("no-such-topic", 0))

    @scenario
    async def test_every_lane_has_ends_and_a_length(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        await sandbox.publish(topic, *numbered(7), lane=1)
        ends = await sandbox.broker.lane_ends(topic)
        assert set(ends) == {Lane(topic, 0), Lane(topic, 1)}
        if sandbox.broker.traits.positions_count_records:
            assert ends[Lane(topic, 1)].end - ends[Lane(topic, 1)].start == 7

    @scenario_with("browses")
    async def test_all_that_waits_can_be_browsed(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        await sandbox.publish(topic, *numbered(20))
        for _ in range(2):
            assert await read(sandbox.broker, Lane(topic, 0)) == numbered(20)
        consumer = await sandbox.consume(topic)
        assert await consumer.take(20) == numbered(20)

    @scenario
    async def test_the_ends_of_an_unknown_topic_are_not_found(self, sandbox: Sandbox) -> None:
        with pytest.raises(NotFound):
            await sandbox.broker.lane_ends("no-such-topic")

    @scenario_with("reads_ranges")
    async def test_a_run_can_be_read_without_a_group(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic(lanes=2)
        at = await sandbox.publish(topic, *numbered(500), lane=1)
        middle = await read(sandbox.broker, Lane(topic, 1), Run(at[100], at[400]))
        assert middle == numbered(500)[100:400]

    @scenario_with("reads_ranges")
    async def test_a_run_is_read_in_chunks_of_the_requested_size(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        at = await sandbox.publish(topic, *[bytes(1000)] * 40, b"last")
        chunks = [chunk async for chunk in sandbox.broker.read(Lane(topic, 0), Run(at[0], at[-1] + 1), 5000)]
        assert sum(len(chunk.frames) for chunk in chunks) == 41
        assert all(chunk.ends[-1] <= 5000 for chunk in chunks)

    @scenario_with("reads_ranges")
    async def test_reading_ends_with_the_lane(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        at = await sandbox.publish(topic, *numbered(5))
        assert await read(sandbox.broker, Lane(topic, 0), Run(at[3], at[-1] + 100)) == [b"3", b"4"]
        assert await read(sandbox.broker, Lane(topic, 0), Run(at[-1] + 10, at[-1] + 100)) == []

    @scenario_with("reads_ranges")
    async def test_reading_an_unknown_lane_is_not_found(self, sandbox: Sandbox) -> None:
        topic = await sandbox.topic()
        with pytest.raises(NotFound):
            await read(sandbox.broker, Lane(topic, 1), Run(0, 1))
