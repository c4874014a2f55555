"""Commits and seeks of Pulsar lanes that began anew before the core has heard of it."""

import asyncio
from types import SimpleNamespace

import pytest

from sidecar.brokers.base import LaneEnd, Lost, SeekTo
from sidecar.brokers.pulsar.positions import pack
from sidecar.brokers.pulsar.source import PulsarSource
from sidecar.model.errors import LaneGone, Unavailable
from sidecar.model.records import Assigned, Commit
from tests.unit.brokers.pulsar.pulsar_kit import LANE, FakeConsumer, FakeOpening, MessageId, source_on


def test_a_commit_of_what_an_earlier_consumer_had_acks_nothing_of_its_successor() -> None:
    async def body() -> None:
        old, new = FakeConsumer(), FakeConsumer()
        source = source_on(FakeOpening(old, Unavailable("the broker is away"), new))
        await source._look_for_lanes()
        # Those in between are with another sidecar.
        old.sends(MessageId(4, 1), MessageId(4, 3), MessageId(4, 5))
        await source.poll(9, 1 << 20, 1.0)
        source._lanes[LANE].failed = Unavailable("the consumer is gone")
        with pytest.raises(Unavailable):
            await source.poll(9, 1 << 20, 1.0)
        # It is joined anew while the core waits before it polls again, and gets what that sidecar had.
        await source._look_for_lanes()
        new.sends(MessageId(4, 2))
        async with asyncio.timeout(10):
            while not source._lanes[LANE].ready:
                source._wake.clear()
                await source._wake.wait()
        with pytest.raises(LaneGone) as gone:
            await source.commit({LANE: Commit(pack(4, 5) + 1)})
        assert gone.value.lanes == {LANE}
        assert not new.told
        polled = await source.poll(9, 1 << 20, 1.0)
        assert [type(event) for event in polled.events] == [Lost, Assigned]
        await source.commit({LANE: Commit(polled.chunks[0].positions[-1] + 1)})
        assert new.told == [MessageId(4, 2)]
        await source.close()

    asyncio.run(body())


def test_a_seek_of_a_lane_that_fails_meanwhile_says_that_it_is_gone() -> None:
    async def body() -> None:
        source = source_on(FakeOpening(FakeConsumer()), exclusive=True, admin=SimpleNamespace(end=end), resolve=resolve)
        await source._look_for_lanes()
        lost.append(source)
        with pytest.raises(LaneGone):
            await source.seek({LANE: SeekTo.START})
        await source.close()

    lost: list[PulsarSource] = []

    async def end(name: str) -> LaneEnd:
        return LaneEnd(pack(4, 0), pack(4, 6))

    async def resolve(name: str, ends: LaneEnd, target: object) -> int:
        await lost[0]._lanes.pop(LANE).close()
        return ends.start

    asyncio.run(body())
