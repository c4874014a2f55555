"""One lane: acks when no thread is free, a broker that goes back to what was acked, and cumulative acks."""

import asyncio

import pytest

from sidecar.brokers.pulsar.positions import pack
from sidecar.model.records import Commit, Run
from tests.event_loop import on_event_loop
from tests.unit.brokers.pulsar.pulsar_kit import Bench, MessageId, bench

IDS = [MessageId(4, entry) for entry in range(4)]


async def give_up_on_ack(at: Bench, commit: Commit) -> None:
    """Commit while no thread is free, and time out as the core does."""
    at.client.free.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await at.lane.ack(commit)


@on_event_loop
async def test_acks_are_made_although_the_caller_has_timed_out() -> None:
    at = bench()
    positions = await at.receive(*IDS)
    await give_up_on_ack(at, Commit(positions[-1] + 1))
    again = asyncio.create_task(at.lane.ack(Commit(positions[-1] + 1)))
    # The next commit finds nothing left to ack, and waits as well.
    assert not (await asyncio.wait((again,), timeout=0))[0]
    at.client.free.set()
    await again
    assert at.consumer.calls == IDS
    await at.lane.close()


@on_event_loop
async def test_acks_that_fail_after_the_caller_has_timed_out_fail_the_lane() -> None:
    at = bench()
    positions = await at.receive(*IDS)
    await give_up_on_ack(at, Commit(positions[-1] + 1))
    at.client.away = True
    at.client.free.set()
    await at.wait_until(lambda: at.lane.failed is not None)
    await at.lane.close()


@on_event_loop
async def test_closing_and_seeking_wait_for_acks() -> None:
    at = bench()
    positions = await at.receive(*IDS)
    await give_up_on_ack(at, Commit(positions[1]))
    seeking = asyncio.create_task(at.lane.seek(pack(4, 0), at_end=False))
    at.client.free.set()
    await seeking
    assert at.consumer.calls == [IDS[0], "seek"]
    positions = await at.receive(*IDS)
    await give_up_on_ack(at, Commit(positions[-1] + 1))
    closing = asyncio.create_task(at.lane.close())
    at.client.free.set()
    await closing
    assert at.consumer.calls[2:] == [*IDS, "close"]


@on_event_loop
async def test_an_exclusive_lane_fails_when_the_broker_lost_an_ack_beyond_the_position() -> None:
    at = bench(exclusive=True)
    positions = await at.receive(*IDS)
    await at.lane.ack(Commit(positions[0], (Run(positions[1], positions[1] + 1),)))
    # A reconnect. Unacked messages are duplicates, but the broker does not know that 4:1 was acked.
    at.consumer.deliver(*IDS)
    await at.wait_until(lambda: at.lane.failed is not None)
    assert "goes back to what was acked" in str(at.lane.failed)
    assert not at.lane.ready
    await at.lane.close()


@on_event_loop
async def test_a_shared_lane_delivers_again_what_was_acked() -> None:
    at = bench(exclusive=False)
    positions = await at.receive(*IDS)
    await at.lane.ack(Commit(positions[0], (Run(positions[1], positions[1] + 1),)))
    assert await at.receive(IDS[1]) == [positions[-1] + 1]
    assert at.lane.failed is None
    await at.lane.close()


@on_event_loop
async def test_records_that_an_earlier_consumer_may_have_had_are_flagged() -> None:
    at = bench(exclusive=True, had_before=3)
    flags = []
    for entry in range(2):
        at.consumer.deliver(MessageId(0, entry))
        await at.wait_until(lambda: at.lane.ready > 0)
        chunk = at.lane.take(1, 1 << 20, at_least=1, possibly_processed=False)
        assert chunk is not None
        flags.append(chunk.possibly_processed)
    assert flags == [True, False]
    await at.lane.close()


@on_event_loop
async def test_a_commit_acks_cumulatively_up_to_a_gap_and_one_by_one_behind_it() -> None:
    at = bench(exclusive=True)
    positions = await at.receive(MessageId(0, 0), MessageId(0, 2), MessageId(0, 3))
    await at.lane.ack(Commit(positions[-1]))
    cumulative, single = at.consumer.calls
    assert isinstance(cumulative, tuple)
    assert (cumulative[0], str(cumulative[1])) == ("cumulative", "(0,0,-1,-1)")
    assert single == MessageId(0, 2)
    await at.lane.close()
