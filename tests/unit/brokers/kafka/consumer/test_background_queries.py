"""What the event loop finds out for the poll thread."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from sidecar.brokers.base import LaneEnd, Trouble
from sidecar.brokers.kafka.consumer import background_queries as errands
from sidecar.brokers.kafka.consumer.background_queries import Errands
from sidecar.brokers.kafka.consumer.commits import Request
from sidecar.brokers.kafka.lanes import Reading
from sidecar.brokers.kafka.offset_client import Stored
from sidecar.brokers.kafka.starting import Beginning
from sidecar.model.errors import Unavailable
from sidecar.model.records import Lane

ONE, OTHER = Lane("orders", 0), Lane("orders", 1)


class Asked:
    """A member, and everything that is asked for it."""

    def __init__(self) -> None:
        self.ends: Mapping[Lane, LaneEnd] = {ONE: LaneEnd(0, 10), OTHER: LaneEnd(0, 10)}
        self.looks: asyncio.Queue[dict[Lane, LaneEnd]] = asyncio.Queue()
        self.kafka = Kafka()
        self.begun: asyncio.Queue[list[Lane]] = asyncio.Queue()
        self.troubles: asyncio.Queue[Trouble] = asyncio.Queue()
        self.confirmed: asyncio.Queue[Request] = asyncio.Queue()
        self.anew: asyncio.Queue[list[Lane]] = asyncio.Queue()
        me: Any = self
        kafka: Any = self.kafka
        self.errands = Errands(kafka, kafka, kafka, me, lambda: me)

    def note_ends(self, ends: dict[Lane, LaneEnd]) -> None:
        self.looks.put_nowait(ends)

    def has(self, reading: Reading) -> bool:
        return reading.lane in self.ends

    def begin(self, beginnings: Mapping[Reading, Beginning]) -> None:
        self.begun.put_nowait([reading.lane for reading in beginnings])

    def confirm(self, request: Request, told: Any) -> None:
        assert told is request.told
        self.confirmed.put_nowait(request)

    def begin_anew(self, lanes: list[Lane]) -> None:
        self.anew.put_nowait(lanes)

    def tell(self, trouble: Trouble) -> None:
        self.troubles.put_nowait(trouble)


class Kafka:
    """What the cluster knows."""

    def __init__(self) -> None:
        self.answers = True
        self.without_leader: set[Lane] = set()
        self.made_again: set[Lane] = set()
        self.asked: list[set[Lane]] = []
        self.committed: dict[Lane, Stored] = {}
        self.looked_at = asyncio.Event()

    async def stored(self, lanes: Collection[Lane]) -> dict[Lane, Stored]:
        self.looked_at.set()
        return self.committed

    async def connect(self) -> dict[str, str]:
        self.looked_at.set()
        if not self.answers:
            raise Unavailable("nobody is there")
        return {}

    async def ends(self, lanes: Collection[Lane]) -> dict[Lane, LaneEnd]:
        return {lane: LaneEnd(0, 20) for lane in lanes}

    async def remade(self, lanes: Collection[Lane]) -> list[Lane]:
        return [lane for lane in lanes if lane in self.made_again]

    async def beginnings(self, lanes: Collection[Lane]) -> dict[Lane, Beginning]:
        self.asked.append({*lanes})
        await self.connect()
        if self.without_leader & {*lanes}:
            raise Unavailable("there is no leader")
        return {lane: Beginning(0, (), True, LaneEnd(0, 20), 0) for lane in lanes}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for wait in ("_AGAIN", "_LOOK", "_LOOK_AT_PAUSED", "_LOOK_AT_TOPICS"):
        monkeypatch.setattr(errands, wait, 0.0)


def test_lanes_that_are_paused_later_are_looked_at_too() -> None:
    async def body() -> None:
        asked, paused = Asked(), set[Lane]()
        looking = asyncio.create_task(asked.errands.look_at(paused))
        paused.add(ONE)
        assert (await asked.looks.get()).keys() == {ONE}
        paused.add(OTHER)
        while (await asked.looks.get()).keys() != {ONE, OTHER}:
            pass
        looking.cancel()

    asyncio.run(asyncio.wait_for(body(), 5.0))


def test_a_paused_lane_that_went_away_is_not_looked_at_any_more() -> None:
    async def body() -> None:
        asked, paused = Asked(), {ONE, OTHER}
        looking = asyncio.create_task(asked.errands.look_at(paused))
        assert (await asked.looks.get()).keys() == {ONE, OTHER}
        asked.ends = {ONE: LaneEnd(0, 10)}
        while (await asked.looks.get()).keys() != {ONE}:
            pass
        assert paused == {ONE}
        looking.cancel()

    asyncio.run(asyncio.wait_for(body(), 5.0))


def test_a_lane_without_a_leader_does_not_keep_the_others_from_starting() -> None:
    async def body() -> None:
        asked = Asked()
        asked.kafka.without_leader = {OTHER}
        welcoming = asyncio.create_task(asked.errands.welcome([Reading(ONE), Reading(OTHER)]))
        assert await asked.begun.get() == [ONE]
        assert "there is no leader" in (await asked.troubles.get()).text
        asked.kafka.without_leader = set()
        assert await asked.begun.get() == [OTHER]
        await welcoming
        assert not [asked.troubles.get_nowait() for _ in range(asked.troubles.qsize())][-1].text

    asyncio.run(asyncio.wait_for(body(), 5.0))


def test_while_the_cluster_is_away_lanes_are_not_asked_for_one_by_one() -> None:
    async def body() -> None:
        asked = Asked()
        asked.kafka.answers = False
        welcoming = asyncio.create_task(asked.errands.welcome([Reading(ONE), Reading(OTHER)]))
        assert "nobody is there" in (await asked.troubles.get()).text
        asked.kafka.answers = True
        assert await asked.begun.get() == [ONE, OTHER]
        await welcoming
        assert all(lanes == {ONE, OTHER} for lanes in asked.kafka.asked)

    asyncio.run(asyncio.wait_for(body(), 5.0))


def test_a_lane_that_moved_away_before_it_started_is_not_waited_for() -> None:
    async def body() -> None:
        asked = Asked()
        asked.kafka.without_leader = {OTHER}
        welcoming = asyncio.create_task(asked.errands.welcome([Reading(ONE), Reading(OTHER)]))
        assert await asked.begun.get() == [ONE]
        asked.ends = {ONE: LaneEnd(0, 20)}
        await welcoming
        assert asked.begun.empty()

    asyncio.run(asyncio.wait_for(body(), 5.0))


def test_lanes_whose_topic_was_made_again_begin_anew_once_the_cluster_can_be_asked() -> None:
    async def body() -> None:
        asked = Asked()
        asked.kafka.answers = False
        asked.kafka.made_again = {OTHER}
        looking = asyncio.create_task(asked.errands.look_at_topics())
        await asked.kafka.looked_at.wait()
        assert asked.anew.empty()
        asked.kafka.answers = True
        assert await asked.anew.get() == [OTHER]
        looking.cancel()

    asyncio.run(asyncio.wait_for(body(), 5.0))


def a_commit(position: int) -> Request:
    request = Request({ONE: (position, "")}, lambda _: None, lambda: True)
    request.told = {ONE: (position, "")}
    return request


def test_a_commit_that_nobody_waits_for_any_more_is_still_looked_for() -> None:
    """The last commit of lanes that move away waits for its turn behind it."""

    async def body() -> None:
        asked, request = Asked(), a_commit(5)
        looking = asyncio.create_task(asked.errands.confirm(request))
        await asked.kafka.looked_at.wait()
        asked.kafka.committed = {ONE: Stored(5, "")}
        assert await asked.confirmed.get() is request
        await looking

    asyncio.run(asyncio.wait_for(body(), 5.0))


def test_a_commit_is_looked_for_until_it_is_answered_or_sent_anew() -> None:
    async def body() -> None:
        asked, answered, sent_anew = Asked(), a_commit(5), a_commit(5)
        looking = [asyncio.create_task(asked.errands.confirm(each)) for each in (answered, sent_anew)]
        await asked.kafka.looked_at.wait()
        answered.over = True
        sent_anew.told = {ONE: (5, "")}
        await asyncio.gather(*looking)
        assert asked.confirmed.empty()

    asyncio.run(asyncio.wait_for(body(), 5.0))
