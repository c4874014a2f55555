"""One group's source: lanes that are joined again, and the checks beside consuming."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.brokers.base import LaneEnd, Lost, SeekTo, SourceSpec, Trouble
from sidecar.brokers.pulsar.admin import TopicState
from sidecar.brokers.pulsar.lane import PulsarLane
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.brokers.pulsar.positions import pack
from sidecar.brokers.pulsar.source import PulsarSource
from sidecar.model.errors import LaneGone, Unavailable
from sidecar.model.records import Assigned, Commit
from tests.event_loop import on_event_loop
from tests.unit.brokers.pulsar.pulsar_kit import LANE, FakeConsumer, FakeJoiner, MessageId, source_on


@on_event_loop
async def test_a_commit_for_an_earlier_consumer_acks_nothing_of_its_successor() -> None:
    old, new = FakeConsumer(), FakeConsumer()
    source = source_on(FakeJoiner(old, Unavailable("the broker is away"), new))
    await source._check_lanes()
    # Another sidecar has the messages in between.
    old.deliver(MessageId(4, 1), MessageId(4, 3), MessageId(4, 5))
    await source.poll(9, 1 << 20, 1.0)
    source._lanes[LANE].failed = Unavailable("the consumer is gone")
    with pytest.raises(Unavailable):
        await source.poll(9, 1 << 20, 1.0)
    # The lane is joined again before the core polls, and gets what that sidecar had.
    await source._check_lanes()
    new.deliver(MessageId(4, 2))
    async with asyncio.timeout(10):
        while not source._lanes[LANE].ready:
            source._wake.clear()
            await source._wake.wait()
    with pytest.raises(LaneGone) as gone:
        await source.commit({LANE: Commit(pack(4, 5) + 1)})
    assert gone.value.lanes == {LANE}
    assert not new.calls
    polled = await source.poll(9, 1 << 20, 1.0)
    assert [type(event) for event in polled.events] == [Lost, Assigned]
    await source.commit({LANE: Commit(polled.chunks[0].positions[-1] + 1)})
    assert new.calls == [MessageId(4, 2)]
    await source.close()


@on_event_loop
async def test_a_seek_of_a_lane_that_fails_meanwhile_raises_lane_gone() -> None:
    lost: list[PulsarSource] = []

    async def end(name: str) -> LaneEnd:
        return LaneEnd(pack(4, 0), pack(4, 6))

    async def resolve(name: str, ends: LaneEnd, target: object) -> int:
        await lost[0]._lanes.pop(LANE).close()
        return ends.start

    source = source_on(FakeJoiner(FakeConsumer()), exclusive=True, admin=SimpleNamespace(lane_end=end), resolve=resolve)
    await source._check_lanes()
    lost.append(source)
    with pytest.raises(LaneGone):
        await source.seek({LANE: SeekTo.START})
    await source.close()


@on_event_loop
async def test_a_lane_that_fails_whenever_it_is_joined_must_wait() -> None:
    class Unreadable(FakeConsumer):
        def batch_receive(self) -> list[object]:  # type: ignore[override]
            raise Unavailable("it cannot be read")

    consumers = [Unreadable() for _ in range(9)]
    for consumer in consumers:
        consumer.deliver(MessageId(4, 0))
    joiner = FakeJoiner(*consumers)
    source = source_on(joiner)
    await source._check_lanes()
    events = []
    for _ in range(6):
        events += (await source.poll(9, 1 << 20, 0.05)).events
        await source._check_connections()
    # It is joined again at once after the first failure, but not after the second.
    assert joiner.joins == 2
    assert events[-1] == Trouble("lanes", "orders/0 fails whenever it is joined: it cannot be read")
    await source.close()


@on_event_loop
async def test_a_check_that_raises_an_unexpected_exception_is_logged_and_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker: Any = SimpleNamespace(options=PulsarOptions(url="pulsar://nowhere"), client=None, admin=None)
    source = PulsarSource(broker, SourceSpec(group="group", topics=("orders",)))
    checks: asyncio.Queue[str] = asyncio.Queue()

    async def check() -> None:
        checks.put_nowait("a check")
        raise KeyError("lastConfirmedEntry")

    repeating = asyncio.create_task(source._repeat(0.0, check))
    async with asyncio.timeout(10):
        await checks.get()
        await checks.get()
    repeating.cancel()
    assert "a check of Pulsar failed" in caplog.text
    assert "lastConfirmedEntry" in caplog.text


@dataclass
class FakeAdmin:
    """An admin API with one group."""

    cursor: int = pack(4, 1)
    backlog: int = 1
    requests: int = 0
    meanwhile: list[Any] = field(default_factory=list)

    async def subscription_stats(self, name: str, group: str) -> Any:
        return SimpleNamespace(backlog=self.backlog, deadlocks=frozenset())

    async def topic_state(self, name: str) -> TopicState:
        self.requests += 1
        for happens in self.meanwhile:
            await happens()
        return TopicState(0, (4, 9), {"group": self.cursor})


async def receive(source: PulsarSource, lane: PulsarLane, *ids: MessageId) -> None:
    """Delivers messages, and waits until they can be taken."""
    consumer: Any = lane._consumer
    consumer.deliver(*ids)
    async with asyncio.timeout(10):
        while lane.ready < len(ids):
            source._wake.clear()
            await source._wake.wait()


@on_event_loop
async def test_the_admin_api_is_asked_only_while_there_are_gaps_and_a_gap_that_stays_is_reported() -> None:
    admin, consumer = FakeAdmin(), FakeConsumer()
    source = source_on(FakeJoiner(consumer), exclusive=True, admin=admin)
    await source._discover()
    lane = source._lanes[LANE]
    await source._measure()
    assert not admin.requests
    await receive(source, lane, MessageId(4, 0), MessageId(4, 2))
    await source._measure()
    await source._measure()
    # The broker waits for the ack of a message that is here.
    assert not source._troubles.get("undelivered")
    await lane.ack(Commit(lane.unacked.next))
    await source._measure()
    await source._measure()
    assert "orders/0 has a message at 4:1 that does not come" in source._troubles["undelivered"]
    admin.cursor = pack(4, 3)
    await source._measure()
    assert source._troubles["undelivered"] == ""
    assert not lane.unacked.has_gaps
    requests = admin.requests
    await source._measure()
    assert admin.requests == requests
    await source.close()


@on_event_loop
async def test_an_answer_of_the_admin_api_from_before_a_seek_does_not_count() -> None:
    admin, consumer = FakeAdmin(cursor=pack(4, 9)), FakeConsumer()
    source = source_on(FakeJoiner(consumer), exclusive=True, admin=admin)
    await source._discover()
    lane = source._lanes[LANE]
    await receive(source, lane, MessageId(4, 2))

    async def seek() -> None:
        await lane.seek(pack(4, 0), at_end=False)
        await receive(source, lane, MessageId(4, 2))

    admin.meanwhile.append(seek)
    await source._measure()
    assert lane.unacked.has_gaps
    await source.close()
