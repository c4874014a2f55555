"""Acks of a lane of Pulsar when the threads of the library are busy."""

import asyncio

import pytest

from sidecar.brokers.pulsar.positions import pack
from sidecar.model.records import Commit
from tests.unit.brokers.pulsar.pulsar_kit import Bench, MessageId, bench

IDS = [MessageId(4, entry) for entry in range(3)]


async def given_up(at: Bench, commit: Commit) -> None:
    """Commit while no thread is free, and wait no longer than the core does."""
    at.library.free.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await at.lane.ack(commit)


def test_acks_that_nobody_waits_for_any_more_are_made_all_the_same() -> None:
    async def body() -> None:
        at = bench()
        positions = await at.arrives(*IDS)
        await given_up(at, Commit(positions[-1] + 1))
        again = asyncio.create_task(at.lane.ack(Commit(positions[-1] + 1)))
        # The next commit, which finds nothing that is left to ack, is no better off.
        assert not (await asyncio.wait((again,), timeout=0))[0]
        at.library.free.set()
        await again
        assert at.consumer.told == IDS
        await at.lane.close()

    asyncio.run(body())


def test_acks_that_fail_when_nobody_waits_any_more_fail_the_lane() -> None:
    async def body() -> None:
        at = bench()
        positions = await at.arrives(*IDS)
        await given_up(at, Commit(positions[-1] + 1))
        at.library.away = True
        at.library.free.set()
        await at.is_(lambda: at.lane.failed is not None)
        await at.lane.close()

    asyncio.run(body())


def test_a_lane_is_closed_and_sought_only_after_its_acks() -> None:
    async def body() -> None:
        at = bench()
        positions = await at.arrives(*IDS)
        await given_up(at, Commit(positions[1]))
        seeking = asyncio.create_task(at.lane.seek(pack(4, 0), at_end=False))
        at.library.free.set()
        await seeking
        assert at.consumer.told == [IDS[0], "sought"]
        positions = await at.arrives(*IDS)
        await given_up(at, Commit(positions[-1] + 1))
        closing = asyncio.create_task(at.lane.close())
        at.library.free.set()
        await closing
        assert at.consumer.told[2:] == [*IDS, "closed"]

    asyncio.run(body())
