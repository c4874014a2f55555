"""A broker that goes back to what was acked, where one consumer alone has the lane."""

import asyncio

from sidecar.model.records import Commit, Run
from tests.unit.brokers.pulsar.pulsar_kit import MessageId, bench

IDS = [MessageId(4, entry) for entry in range(4)]


def test_a_lane_fails_when_an_ack_beyond_its_floor_was_lost() -> None:
    async def body() -> None:
        at = bench(exclusive=True)
        positions = await at.arrives(*IDS)
        await at.lane.ack(Commit(positions[0], (Run(positions[1], positions[1] + 1),)))
        # The library has connected anew. What is in hand is no news; but the broker does not know that 4:1 was acked.
        at.consumer.sends(*IDS)
        await at.is_(lambda: at.lane.failed is not None)
        assert "goes back to what was acked" in str(at.lane.failed)
        assert not at.lane.ready
        await at.lane.close()

    asyncio.run(body())


def test_others_of_the_group_may_have_had_it_where_a_lane_is_shared() -> None:
    async def body() -> None:
        at = bench(exclusive=False)
        positions = await at.arrives(*IDS)
        await at.lane.ack(Commit(positions[0], (Run(positions[1], positions[1] + 1),)))
        assert await at.arrives(IDS[1]) == [positions[-1] + 1]
        assert at.lane.failed is None
        await at.lane.close()

    asyncio.run(body())


def test_what_an_earlier_consumer_may_have_had_is_flagged() -> None:
    async def body() -> None:
        at = bench(exclusive=True, had_before=3)
        flags = []
        for entry in range(2):
            at.consumer.sends(MessageId(0, entry))
            await at.is_(lambda: at.lane.ready > 0)
            chunk = at.lane.take(1, 1 << 20, at_least=1, possibly_processed=False)
            assert chunk is not None
            flags.append(chunk.possibly_processed)
        assert flags == [True, False]
        await at.lane.close()

    asyncio.run(body())
