"""What the mechanism does beyond the contract: credit, renewals, lost connections, limits, parked records."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from sidecar.brokers.base import Lost, SourceSpec, Trouble
from sidecar.brokers.queue.broker import QueueBroker
from sidecar.brokers.queue.driver import Limits
from sidecar.brokers.queue.source import QueueSource
from sidecar.core.failures import retry_topic
from sidecar.model.errors import LaneGone, NotFound, Refused, Unavailable
from sidecar.model.records import Assigned, Commit, Lane, Message, Place, Record, Run, Start
from tests.brokers.harness import Consumer, consuming, numbered
from tests.brokers.queue.harness import PLAIN, STREAM, broker_on
from tests.brokers.queue.memory_driver import Handle, Nature, Server
from tests.promises import adjustable_time
from tests.promises.adjustable_time import AdjustableClock, advance, until

LANE = Lane("topic", 0)
LEASES = Nature(lease=60.0, channels=False)


@dataclass
class Bench:
    """A queue with numbered records, and a consumer that has taken them."""

    server: Server
    broker: QueueBroker[Handle]
    consumer: Consumer

    @property
    def share(self) -> Any:
        return self.server.share("topic", "group")

    async def other(self) -> Consumer:
        """A consumer in another sidecar."""
        broker = broker_on(self.server, AdjustableClock())
        return await Consumer.open(broker, "topic", group="group", own_topics={"own": 2})


def on(nature: Nature, records: int = 0) -> Callable[[Callable[[Bench], Awaitable[None]]], Callable[[], None]]:
    """A test with so many records in hand."""

    def decorate(body: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
        def test() -> None:
            async def run() -> None:
                server = Server(nature)
                broker = broker_on(server, AdjustableClock())
                await broker.ensure_topic("topic", 1)
                await broker.publish("topic", [Message(None, value) for value in numbered(records)])
                source = broker.subscribe(SourceSpec("group", ("topic",), own_topics={"own": 2}))
                await source.open()
                consumer = Consumer(source)
                try:
                    await consumer.until(lambda: LANE in consumer.assigned())
                    await consumer.take(records)
                    await body(Bench(server, broker, consumer))
                finally:
                    await consumer.close()
                assert not server.misused

            adjustable_time.run(run)

        test.__name__ = body.__name__
        test.__doc__ = body.__doc__
        return test

    return decorate


def test_a_lane_that_comes_later_is_read_from_its_start_whatever_start_says() -> None:
    async def run() -> None:
        server = Server(STREAM)
        broker = broker_on(server, AdjustableClock())
        await broker.ensure_topic("topic", 1)
        async with consuming(broker, "topic", start=Start.LATEST) as consumer:
            await consumer.until(consumer.assigned)
            server.make("topic.1")
            await broker.driver.publish(Lane("topic", 1), [Message(None, b"before anybody knew of it")])
            while not consumer.values:
                await advance(5.0)
                await consumer.poll(timeout=0.01)
            assert consumer.values == [b"before anybody knew of it"]

    adjustable_time.run(run)


@on(PLAIN, 10)
async def test_a_lost_connection_begins_a_new_epoch_in_which_all_comes_again_flagged(bench: Bench) -> None:
    before = bench.consumer.positions
    bench.consumer.forget()
    bench.server.cut()
    await bench.consumer.take(10)
    lost, assigned = (event for event in bench.consumer.events if isinstance(event, Lost | Assigned) if _of(event))
    assert (type(lost), type(assigned)) == (Lost, Assigned)
    assert bench.consumer.values == numbered(10)
    assert min(bench.consumer.positions) > max(before)
    assert all(chunk.possibly_processed for chunk in bench.consumer.chunks)


@on(PLAIN, 10)
async def test_nothing_of_a_lost_epoch_is_acked_in_the_next(bench: Bench) -> None:
    settled = Commit(bench.consumer.positions[-1] + 1)
    bench.server.cut()
    await until(lambda: bench.server.calls["receiver"] > 3 and bench.share.held, "it is received again")
    with pytest.raises(LaneGone):
        await bench.consumer.commit(LANE, settled)
    assert len(bench.share.messages) == 10


@on(PLAIN, 10)
async def test_an_ack_whose_answer_was_lost_is_repeated(bench: Bench) -> None:
    bench.server.faults.acks_lost = 1
    settled = Commit(bench.consumer.positions[3] + 1)
    with pytest.raises(Unavailable):
        await bench.consumer.commit(LANE, settled)
    await bench.consumer.commit(LANE, settled)
    assert len(bench.share.messages) == 6


@on(PLAIN, 10)
async def test_a_commit_acks_exactly_what_it_covers(bench: Bench) -> None:
    at = bench.consumer.positions
    await bench.consumer.commit(LANE, Commit(at[2], (Run(at[4], at[6] + 1), Run(at[9], at[9] + 1))))
    assert [stored.message.value for stored in bench.share.messages.values()] == [b"2", b"3", b"7", b"8"]


@on(PLAIN, 10)
async def test_a_close_gives_back_at_once_what_is_held(bench: Bench) -> None:
    await bench.consumer.commit(LANE, Commit(bench.consumer.positions[4]))
    await bench.consumer.close()
    assert not bench.share.held
    other = await bench.other()
    assert await other.take(6) == numbered(10)[4:]
    await other.close()


@on(LEASES, 10)
async def test_what_is_held_for_long_is_renewed_and_comes_to_nobody_else(bench: Bench) -> None:
    other = await bench.other()
    for _ in range(40):
        await advance(10.0)
        await asyncio.sleep(0)
    await other.stays_silent()
    # Its handles have changed with each renewal.
    await bench.consumer.commit(LANE, Commit(bench.consumer.positions[-1] + 1))
    assert not bench.share.messages
    await other.close()


@on(LEASES, 10)
async def test_a_record_whose_lease_ran_out_goes_on_with_its_new_handle(bench: Bench) -> None:
    """It comes again to the sidecar that has it still: nothing is delivered twice, and the ack counts."""
    at = bench.consumer.positions
    bench.consumer.forget()
    await advance(70.0)
    await until(lambda: len(bench.share.held) == 10 and bench.share.deliveries[9] == 2, "all is received again")
    await bench.consumer.stays_silent()
    await bench.consumer.commit(LANE, Commit(at[-1] + 1))
    assert not bench.share.messages


@on(LEASES, 10)
async def test_a_record_that_comes_again_after_its_late_ack_is_acked_and_not_delivered(bench: Bench) -> None:
    at = bench.consumer.positions
    bench.consumer.forget()
    bench.server.faults.renewals_fail = True
    await bench.consumer.source.pause([LANE])
    await advance(70.0)
    bench.server.return_expired(bench.share)
    await bench.consumer.commit(LANE, Commit(at[4]))
    assert len(bench.share.messages) == 10
    await bench.consumer.source.resume([LANE])
    await until(lambda: len(bench.share.held) == 10, "all is received again")
    await bench.consumer.stays_silent()
    await bench.consumer.commit(LANE, Commit(at[5]))
    assert [stored.message.value for stored in bench.share.messages.values()] == numbered(10)[5:]


@on(PLAIN)
async def test_a_jump_from_small_to_huge_messages_keeps_what_is_in_memory_bounded(bench: Bench) -> None:
    huge = 1 << 20
    values = [bytes(100)] * 3000 + [bytes(huge)] * 30
    await bench.broker.publish("topic", [Message(None, value) for value in values])
    limit = 200_000
    taken, most = 0, 0
    while taken < len(values):
        polled = await bench.consumer.poll(max_records=2000, max_bytes=limit)
        taken += sum(len(chunk.frames) for chunk in polled.chunks)
        # What was polled is the core's; the rest waits in the mechanism.
        await asyncio.sleep(0)
        sizes = [len(held.stored.message.value or b"") for held in bench.server.held()]
        polled_bytes = sum(len(value or b"") for value in bench.consumer.values)
        most = max(most, sum(sizes) - polled_bytes)
        lane_positions = bench.consumer.positions
        if polled.chunks:
            await bench.consumer.commit(LANE, Commit(lane_positions[-1] + 1))
            bench.consumer.polls.clear()
    assert most <= limit + huge


@on(PLAIN)
async def test_a_paused_lane_asks_for_nothing_more(bench: Bench) -> None:
    await bench.consumer.source.pause([LANE])
    await bench.consumer.poll(timeout=0.01)
    await bench.broker.publish("topic", [Message(None, value) for value in numbered(5000)])
    for _ in range(5):
        await advance(1.0)
        await bench.consumer.poll(timeout=0.01)
    assert len(bench.share.held) <= 4


@on(Nature(limits=Limits(deliveries=4)), 3)
async def test_a_record_that_the_broker_would_drop_soon_is_parked_before(bench: Bench) -> None:
    for _ in range(8):
        bench.consumer.forget()
        bench.server.cut()
        await bench.consumer.take(3)
        await advance(15.0)
    own = bench.server.share("own", "group")
    assert not bench.share.dropped
    assert not own.dropped
    assert not bench.share.messages
    assert {record.value for record in bench.consumer.records} == set(numbered(3))
    original = retry_topic.unpark(bench.consumer.chunks[0], 0, now=0.0, wall_ms=0, possibly_processed=False)
    assert (original.chunk.origin, original.history.possibly_processed) == (LANE, True)


def _parked(wait: float) -> Message:
    record = Record(b"key", b"value", (), 0, 7, ref=b"m7")
    headers = retry_topic.redriven(record, "topic", "", wall_ms=AdjustableClock().wall_ms() + int(wait * 1000)).headers
    name, value = headers[-1]
    assert value is not None
    header = type(headers[-1])(name, value.replace(b'"wait_ms": 0', b'"wait_ms": %d' % int(wait * 1000)))
    return Message(b"key", b"value", (*headers[:-1], header), lane=1, aside=True)


WAITS = {
    "kept here and published anew": Nature(limits=Limits(hold=600.0)),
    "published anew with a delay": Nature(limits=Limits(hold=600.0), longest_delay=900.0),
    "given back with a delay": Nature(limits=Limits(hold=600.0), longest_return_delay=1200.0),
    "held by the core": Nature(),
}


@pytest.mark.parametrize("nature", WAITS.values(), ids=WAITS)
def test_a_parked_record_waits_for_longer_than_the_broker_lets_a_message_be_held(nature: Nature) -> None:
    async def body(bench: Bench) -> None:
        await bench.broker.publish("own", [_parked(7200.0)])
        for step in range(60):
            await bench.consumer.poll(timeout=0.0)
            for _ in range(5):
                await asyncio.sleep(0)
            if nature.limits.hold < 7200.0:
                assert not bench.consumer.chunks, f"came after {step * 120} s"
            await advance(120.0)
        await bench.consumer.take_values([b"value"])
        assert not [event for event in bench.consumer.events if isinstance(event, Lost)]
        assert len(bench.server.share("own.1", "group").messages) == 1

    on(nature)(body)()


@on(Nature(limits=Limits(hold=600.0)), 1)
async def test_a_record_that_is_held_nearly_too_long_is_a_trouble(bench: Bench) -> None:
    await advance(500.0)
    await bench.consumer.poll(timeout=0.01)
    (trouble,) = (event for event in bench.consumer.events if isinstance(event, Trouble) and event.text)
    assert "topic/0: a record is held for 500 s" in trouble.text


@on(PLAIN)
async def test_a_broker_that_is_away_is_a_trouble_until_it_is_back(bench: Bench) -> None:
    bench.server.faults.away = True
    bench.server.look()
    await bench.consumer.until(lambda: _troubles(bench).get("connection"))
    bench.server.faults.away = False
    async with adjustable_time.fast_forward():
        await bench.consumer.until(lambda: _troubles(bench).get("connection") == "")


def _troubles(bench: Bench) -> dict[str, str]:
    return {event.kind: event.text for event in bench.consumer.events if isinstance(event, Trouble)}


def _of(event: Lost | Assigned) -> bool:
    return LANE in event.lanes if isinstance(event, Lost) else event.lane == LANE


@on(Nature(longest_delay=60.0))
async def test_a_message_that_is_to_wait_for_longer_than_the_broker_can_is_refused(bench: Bench) -> None:
    await bench.broker.publish("topic", [Message(None, b"later", deliver_after=50.0)])
    await bench.consumer.stays_silent(timeout=0.02)
    await advance(50.0)
    assert await bench.consumer.take(1) == [b"later"]
    with pytest.raises(Refused, match="at most 60 s later"):
        await bench.broker.publish("topic", [Message(None, b"later", deliver_after=61.0)])


@on(PLAIN)
async def test_each_message_has_an_outcome_of_its_own(bench: Bench) -> None:
    await bench.broker.ensure_topic("two", 2)
    await bench.broker.publish("two", [Message(None, b"", lane=1)])
    del bench.server.queues["two.1"]
    messages = [Message(None, b"there", lane=0), Message(None, b"gone", lane=1)]
    there, gone = await bench.broker.publish_each("two", messages)
    assert there == Place(0, -1)
    assert isinstance(gone, NotFound)


@on(PLAIN)
async def test_what_waits_to_be_polled_is_dropped_with_its_epoch(bench: Bench) -> None:
    await bench.broker.publish("topic", [Message(None, value) for value in numbered(12)])
    await bench.consumer.take(1, max_records=1)
    first = bench.consumer.positions[0]
    bench.server.cut()
    with pytest.raises(LaneGone):
        await bench.consumer.commit(LANE, Commit(first + 1))
    bench.consumer.forget()
    await bench.consumer.take(12)
    assert bench.consumer.values == numbered(12)
    assert min(bench.consumer.positions) >= bench.consumer.assigned()[LANE].start > first


@on(LEASES)
async def test_what_waited_while_its_lease_may_have_run_out_comes_flagged(bench: Bench) -> None:
    """Another sidecar may have had it meanwhile."""
    await bench.broker.publish("topic", [Message(None, b"0")])
    await until(lambda: bench.share.held, "it is received, and waits to be polled")
    bench.server.faults.renewals_fail = True
    for _ in range(8):
        await advance(10.0)
    await bench.consumer.take(1)
    assert [chunk.possibly_processed for chunk in bench.consumer.chunks] == [True]


@on(Nature(numbered=True), 10)
async def test_a_commit_that_waits_for_its_turn_settles_nothing_of_the_next_epoch(bench: Bench) -> None:
    """There the same messages have the same positions."""
    source = bench.consumer.source
    assert isinstance(source, QueueSource)
    async with source._lanes[LANE]._settling:
        waiting = asyncio.create_task(bench.consumer.commit(LANE, Commit(10)))
        await asyncio.sleep(0)
        bench.server.cut()
        await until(lambda: bench.server.calls["receiver"] > 3 and bench.share.held, "it is received again")
    with pytest.raises(LaneGone):
        await waiting
    assert len(bench.share.messages) == 10


@on(Nature(limits=Limits(hold=600.0)))
async def test_a_cumulative_ack_leaves_out_what_is_kept_until_it_is_due(bench: Bench) -> None:
    await bench.broker.publish("own", [_parked(7200.0), Message(None, b"now", lane=1)])
    await bench.consumer.take_values([b"now"])
    await bench.consumer.commit(Lane("own", 1), Commit(bench.consumer.positions[-1] + 1))
    assert [stored.message.value for stored in bench.server.share("own.1", "").messages.values()] == [b"value"]
