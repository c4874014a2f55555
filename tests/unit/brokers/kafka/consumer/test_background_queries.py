"""What the event loop asks of Kafka for the poll thread."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from sidecar.brokers.base import LaneEnd, Trouble
from sidecar.brokers.kafka.consumer import background_queries
from sidecar.brokers.kafka.consumer.background_queries import BackgroundQueries
from sidecar.brokers.kafka.consumer.commits import CommitRequest
from sidecar.brokers.kafka.consumer.position_control import LaneReader
from sidecar.brokers.kafka.consumer.start_position import StartPosition
from sidecar.brokers.kafka.offset_client import StoredPosition
from sidecar.model.errors import Unavailable
from sidecar.model.records import Lane
from tests.event_loop import on_event_loop

pytestmark = pytest.mark.timeout(30)

ONE, OTHER = Lane("orders", 0), Lane("orders", 1)


class Thread:
    """Stands in for the poll thread and its buffer, with queries for it."""

    def __init__(self) -> None:
        self.ends: Mapping[Lane, LaneEnd] = {ONE: LaneEnd(0, 10), OTHER: LaneEnd(0, 10)}
        self.ends_updates: asyncio.Queue[dict[Lane, LaneEnd]] = asyncio.Queue()
        self.kafka = Kafka()
        self.started: asyncio.Queue[Mapping[Lane, int]] = asyncio.Queue()
        self.troubles: asyncio.Queue[Trouble] = asyncio.Queue()
        self.confirmed: asyncio.Queue[CommitRequest] = asyncio.Queue()
        self.checked_commits: asyncio.Queue[list[Lane]] = asyncio.Queue()
        self.restarted: asyncio.Queue[list[Lane]] = asyncio.Queue()
        me: Any = self
        kafka: Any = self.kafka
        self.queries = BackgroundQueries(kafka, kafka, kafka, me, lambda: me)

    def update_ends(self, ends: dict[Lane, LaneEnd]) -> None:
        self.ends_updates.put_nowait(ends)

    def has(self, reader: LaneReader) -> bool:
        return reader.lane in self.ends

    def start_lanes(self, starts: Mapping[LaneReader, StartPosition]) -> None:
        self.started.put_nowait([reader.lane for reader in starts])

    def confirm(self, request: CommitRequest, sent: Any) -> None:
        assert sent is request.sent
        self.confirmed.put_nowait(request)

    def checked(self, request: CommitRequest, stored: Mapping[Lane, int]) -> None:
        self.checked_commits.put_nowait(stored)

    def restart_lanes(self, lanes: list[Lane]) -> None:
        self.restarted.put_nowait(lanes)

    def add_event(self, trouble: Trouble) -> None:
        self.troubles.put_nowait(trouble)


class Kafka:
    """What the cluster knows."""

    def __init__(self) -> None:
        self.answers = True
        self.without_leader: set[Lane] = set()
        self.recreated_lanes: set[Lane] = set()
        self.asked: list[set[Lane]] = []
        self.committed: dict[Lane, StoredPosition] = {}
        self.queried = asyncio.Event()

    async def stored(self, lanes: Collection[Lane]) -> dict[Lane, StoredPosition]:
        self.queried.set()
        if not self.answers:
            raise Unavailable("nobody is there")
        return self.committed

    async def connect(self) -> dict[str, str]:
        self.queried.set()
        if not self.answers:
            raise Unavailable("nobody is there")
        return {}

    async def ends(self, lanes: Collection[Lane]) -> dict[Lane, LaneEnd]:
        return {lane: LaneEnd(0, 20) for lane in lanes}

    async def recreated(self, lanes: Collection[Lane]) -> list[Lane]:
        return [lane for lane in lanes if lane in self.recreated_lanes]

    async def start_positions(self, lanes: Collection[Lane]) -> dict[Lane, StartPosition]:
        self.asked.append({*lanes})
        await self.connect()
        if self.without_leader & {*lanes}:
            raise Unavailable("there is no leader")
        return {lane: StartPosition(0, (), True, LaneEnd(0, 20), 0) for lane in lanes}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for interval in ("_RETRY_INTERVAL", "_COMMIT_INTERVAL", "_PAUSED_ENDS_INTERVAL", "_TOPICS_INTERVAL"):
        monkeypatch.setattr(background_queries, interval, 0.0)


@on_event_loop
async def test_the_ends_of_lanes_that_are_paused_later_are_queried_too() -> None:
    thread, paused = Thread(), set[Lane]()
    watching = asyncio.create_task(thread.queries.watch_paused_ends(paused))
    paused.add(ONE)
    assert (await thread.ends_updates.get()).keys() == {ONE}
    paused.add(OTHER)
    while (await thread.ends_updates.get()).keys() != {ONE, OTHER}:
        pass
    watching.cancel()


@on_event_loop
async def test_the_ends_of_a_paused_lane_that_moved_away_are_no_longer_queried() -> None:
    thread, paused = Thread(), {ONE, OTHER}
    watching = asyncio.create_task(thread.queries.watch_paused_ends(paused))
    assert (await thread.ends_updates.get()).keys() == {ONE, OTHER}
    thread.ends = {ONE: LaneEnd(0, 10)}
    while (await thread.ends_updates.get()).keys() != {ONE}:
        pass
    assert paused == {ONE}
    watching.cancel()


@on_event_loop
async def test_a_lane_without_a_leader_does_not_keep_the_others_from_starting() -> None:
    thread = Thread()
    thread.kafka.without_leader = {OTHER}
    resolving = asyncio.create_task(thread.queries.resolve_starts([LaneReader(ONE), LaneReader(OTHER)]))
    assert await thread.started.get() == [ONE]
    assert "there is no leader" in (await thread.troubles.get()).text
    thread.kafka.without_leader = set()
    assert await thread.started.get() == [OTHER]
    await resolving
    assert not [thread.troubles.get_nowait() for _ in range(thread.troubles.qsize())][-1].text


@on_event_loop
async def test_while_the_cluster_is_away_lanes_are_not_queried_one_by_one() -> None:
    thread = Thread()
    thread.kafka.answers = False
    resolving = asyncio.create_task(thread.queries.resolve_starts([LaneReader(ONE), LaneReader(OTHER)]))
    assert "nobody is there" in (await thread.troubles.get()).text
    thread.kafka.answers = True
    assert await thread.started.get() == [ONE, OTHER]
    await resolving
    assert all(lanes == {ONE, OTHER} for lanes in thread.kafka.asked)


@on_event_loop
async def test_a_lane_that_moved_away_before_it_started_is_not_waited_for() -> None:
    thread = Thread()
    thread.kafka.without_leader = {OTHER}
    resolving = asyncio.create_task(thread.queries.resolve_starts([LaneReader(ONE), LaneReader(OTHER)]))
    assert await thread.started.get() == [ONE]
    thread.ends = {ONE: LaneEnd(0, 20)}
    await resolving
    assert thread.started.empty()


@on_event_loop
async def test_lanes_whose_topic_was_recreated_restart_once_the_cluster_answers() -> None:
    thread = Thread()
    thread.kafka.answers = False
    thread.kafka.recreated_lanes = {OTHER}
    watching = asyncio.create_task(thread.queries.watch_topics())
    await thread.kafka.queried.wait()
    assert thread.restarted.empty()
    thread.kafka.answers = True
    assert await thread.restarted.get() == [OTHER]
    watching.cancel()


def a_commit(position: int) -> CommitRequest:
    request = CommitRequest({ONE: (position, "")}, lambda _: None, lambda: True)
    request.sent = {ONE: (position, "")}
    return request


@on_event_loop
async def test_a_cancelled_commit_is_still_queried() -> None:
    """The last commit of lanes that move away waits behind it."""
    thread, request = Thread(), a_commit(5)
    watching = asyncio.create_task(thread.queries.confirm_commit(request))
    await thread.kafka.queried.wait()
    thread.kafka.committed = {ONE: StoredPosition(5, "")}
    assert await thread.confirmed.get() is request
    await watching


@on_event_loop
async def test_a_commit_is_queried_until_it_is_answered_or_sent_again() -> None:
    thread, answered, sent_again = Thread(), a_commit(5), a_commit(5)
    watching = [asyncio.create_task(thread.queries.confirm_commit(each)) for each in (answered, sent_again)]
    await thread.kafka.queried.wait()
    answered.done = True
    sent_again.sent = {ONE: (5, "")}
    await asyncio.gather(*watching)
    assert thread.confirmed.empty()


@on_event_loop
async def test_what_kafka_has_of_a_commit_that_waits_is_found_as_soon_as_it_answers() -> None:
    thread = Thread()
    thread.kafka.answers = False
    request = CommitRequest({ONE: (5, ""), OTHER: (5, "")}, lambda _: None, lambda: False)
    watching = asyncio.create_task(thread.queries.check_commit(request, [ONE, OTHER]))
    await thread.kafka.queried.wait()
    assert thread.checked_commits.empty()
    thread.kafka.answers = True
    thread.kafka.committed = {ONE: StoredPosition(5, "more acks"), OTHER: StoredPosition(6, "")}
    assert await thread.checked_commits.get() == {ONE: 5, OTHER: 6}
    await watching
