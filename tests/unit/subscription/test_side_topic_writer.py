"""Writing to side topics: until records are written their commit waits."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sidecar.core.failures.backoff import Backoff
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.model.errors import BrokerError, NotFound, Refused, TooLarge, Unavailable
from sidecar.model.records import Message, Place
from sidecar.subscription.events import SideTopic
from sidecar.subscription.side_topic_writer import PendingWrite, SideTopicWriter
from tests.kit import NoJitter, lane_state, slice_of
from tests.memory_broker import MemoryBroker
from tests.simulation.virtual_time import VirtualLoop

TOPIC = "orders.offramp.dead"


class FailingBroker(MemoryBroker):
    """Raises the `failures`, one for each write, and then works. Never accepts the record `huge`.

    The same with `failures_to_make` for topics.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[BrokerError] = []
        self.failures_to_make: list[BrokerError] = []
        self.writes: list[tuple[str, list[bytes | None]]] = []
        self.made: list[tuple[str, int]] = []
        #: records before the one that is refused are written
        self.in_part = False
        self.takes_all = False

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        if self.failures:
            raise self.failures.pop(0)
        values = [message.value for message in messages]
        if b"huge" in values and not self.takes_all:
            if self.in_part:
                self.writes.append((topic, values[: values.index(b"huge")]))
            raise TooLarge("it is larger than the topic takes")
        self.writes.append((topic, values))
        return await super().publish(topic, messages)

    async def ensure_topic(self, topic: str, lanes: int) -> None:
        if self.failures_to_make:
            raise self.failures_to_make.pop(0)
        self.made.append((topic, lanes))
        await super().ensure_topic(topic, lanes)


class Setup:
    """A writer that runs, and what it reported: the setup stands in for its events and for the troubles."""

    def __init__(self, topic: SideTopic = SideTopic.DEAD_LETTERS) -> None:
        self.broker = FailingBroker()
        self.done: list[bytes | None] = []
        self.troubles: list[str] = []
        self.changed = asyncio.Event()
        self.given_back: list[bytes | None] = []
        me: Any = self
        backoff = Backoff(0.1, 2.0, 10.0, 0.0, NoJitter())
        self.writer = SideTopicWriter(topic, TOPIC, 8, self.broker, backoff, me, me)

    def written_aside(self, topic: SideTopic, writes: Sequence[PendingWrite]) -> None:
        self.done += [write.message.value for write in writes]
        self.changed.set()

    def too_large_to_park(self, write: PendingWrite) -> None:
        self.given_back.append(write.message.value)

    def set(self, kind: str, text: str) -> None:
        self.troubles.append(text)

    def clear(self, kind: str) -> None:
        self.troubles.append("")

    def add(self, value: bytes, *, state: LaneState | None = None) -> None:
        slice_ = slice_of(1, state=state or lane_state())
        self.writer.add(PendingWrite(slice_, Message(None, value)))

    async def written(self, records: int) -> None:
        """Wait until so many are durably aside."""
        async with asyncio.timeout(10.0):
            while len(self.done) < records:
                self.changed.clear()
                await self.changed.wait()


def running(story: Callable[[Setup], Awaitable[None]], topic: SideTopic = SideTopic.DEAD_LETTERS) -> None:
    """In virtual time."""

    async def run() -> None:
        setup = Setup(topic)
        task = asyncio.create_task(setup.writer.run())
        try:
            await story(setup)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def test_records_are_written_together_in_the_order_given() -> None:
    async def story(setup: Setup) -> None:
        setup.add(b"1")
        setup.add(b"2")
        assert setup.writer.busy
        await setup.written(2)
        setup.add(b"3")
        await setup.written(3)
        assert setup.broker.writes == [(TOPIC, [b"1", b"2"]), (TOPIC, [b"3"])]
        assert setup.done == [b"1", b"2", b"3"]
        assert not setup.writer.busy

    running(story)


def test_a_write_is_tried_until_it_succeeds_and_only_then_is_it_done() -> None:
    async def story(setup: Setup) -> None:
        setup.broker.failures = [Unavailable("no leader"), Unavailable("no leader")]
        setup.add(b"1")
        await setup.written(1)
        assert setup.troubles == [
            f"cannot dead-letter records to {TOPIC}: no leader. Their commit is held back until it works.",
            f"cannot dead-letter records to {TOPIC}: no leader. Their commit is held back until it works.",
            "",
        ]

    running(story)


def test_a_topic_is_made_before_the_first_write_to_it_with_the_lanes_it_should_have() -> None:
    """A topic that the broker creates on the fly would have its default settings."""

    async def story(setup: Setup) -> None:
        for number in range(3):
            setup.add(b"%d" % number)
            await setup.written(number + 1)
        assert setup.broker.made == [(TOPIC, 8)]
        assert setup.troubles == []

    running(story)


def test_a_topic_that_went_missing_is_made_again() -> None:
    async def story(setup: Setup) -> None:
        setup.add(b"1")
        await setup.written(1)
        setup.broker.failures = [NotFound("no such topic")]
        setup.add(b"2")
        await setup.written(2)
        assert setup.broker.made == [(TOPIC, 8)] * 2
        assert setup.troubles == []

    running(story)


def test_nothing_is_written_while_a_topic_cannot_be_made_for_the_moment() -> None:
    async def story(setup: Setup) -> None:
        setup.broker.failures_to_make = [Unavailable("no controller")] * 3
        setup.add(b"1")
        await setup.written(1)
        assert setup.broker.made == [(TOPIC, 8)]
        assert "no controller" in setup.troubles[0]

    running(story)


def test_a_topic_that_may_not_be_made_is_written_to_all_the_same() -> None:
    """Somebody has created it, or the write fails."""

    async def story(setup: Setup) -> None:
        await setup.broker.ensure_topic(TOPIC, 8)
        setup.broker.failures_to_make = [Refused("no right to make topics")]
        setup.add(b"1")
        await setup.written(1)
        assert setup.troubles == []

    running(story)


def test_where_nobody_can_be_asked_to_make_topics_records_are_written_in_the_end() -> None:
    async def story(setup: Setup) -> None:
        await setup.broker.ensure_topic(TOPIC, 8)
        setup.broker.failures_to_make = [Unavailable("nobody listens there")] * 1000
        setup.add(b"1")
        await asyncio.sleep(60.0)
        assert setup.done == [b"1"]
        began = asyncio.get_running_loop().time()
        setup.add(b"2")
        await setup.written(2)
        assert asyncio.get_running_loop().time() == began, "it is not asked again"

    running(story)


def test_a_record_that_the_broker_never_takes_does_not_keep_others_from_being_written() -> None:
    async def story(setup: Setup) -> None:
        setup.add(b"huge")
        setup.add(b"2")
        setup.add(b"3")
        await setup.written(2)
        assert sorted(filter(None, setup.done)) == [b"2", b"3"]
        assert not setup.writer.busy, "a drain does not wait for it"
        assert any("larger than the topic takes" in trouble for trouble in setup.troubles)

    running(story)


def test_a_record_that_is_too_large_is_given_back_where_it_can_be() -> None:
    async def story(setup: Setup) -> None:
        for value in (b"1", b"huge", b"2"):
            setup.add(value)
        await setup.written(2)
        assert setup.done == [b"1", b"2"]
        assert setup.given_back == [b"huge"]
        assert setup.troubles == []

    running(story, SideTopic.RETRY)


def test_so_is_one_that_was_refused_for_another_reason_before() -> None:
    async def story(setup: Setup) -> None:
        setup.broker.failures = [Refused("no right to write")]
        setup.add(b"huge")
        await asyncio.sleep(60.0)
        assert setup.given_back == [b"huge"]
        setup.add(b"1")
        await setup.written(1)
        assert setup.done == [b"1"]

    running(story, SideTopic.RETRY)


def test_records_that_are_refused_keep_no_other_waiting_however_many_they_are() -> None:
    async def story(setup: Setup) -> None:
        for _ in range(300):
            setup.add(b"huge")
        await asyncio.sleep(60.0)
        began = asyncio.get_running_loop().time()
        setup.add(b"parked")
        await setup.written(1)
        assert asyncio.get_running_loop().time() == began

    running(story)


def test_once_a_refused_record_is_taken_the_others_are_tried_at_once() -> None:
    async def story(setup: Setup) -> None:
        for _ in range(300):
            setup.add(b"huge")
        await asyncio.sleep(60.0)
        setup.broker.takes_all = True
        began = asyncio.get_running_loop().time()
        await setup.written(300)
        assert asyncio.get_running_loop().time() - began <= 10.0
        await asyncio.sleep(0)
        assert setup.troubles[-1] == ""

    running(story)


def test_what_was_refused_is_tried_again_while_others_keep_coming() -> None:
    async def story(setup: Setup) -> None:
        setup.add(b"huge")
        await asyncio.sleep(1.0)
        setup.broker.takes_all = True
        for number in range(100):
            setup.add(b"%d" % number)
            await asyncio.sleep(0.1)
        assert b"huge" in setup.done

    running(story)


def test_a_refused_record_is_forgotten_with_its_lane_also_behind_others() -> None:
    async def story(setup: Setup) -> None:
        gone = lane_state(1)
        setup.add(b"huge")
        setup.add(b"huge", state=gone)
        await asyncio.sleep(1.0)
        gone.phase = LanePhase.GONE
        setup.broker.takes_all = True
        await asyncio.sleep(60.0)
        assert setup.done == [b"huge"]

    running(story)


def test_beside_a_record_that_the_broker_never_takes_nothing_is_written_more_than_twice() -> None:
    """A write that fails may have been done in part, and repeating it makes copies."""

    async def story(setup: Setup) -> None:
        setup.broker.in_part = True
        for number in range(60):
            setup.add(b"huge" if number == 40 else b"%d" % number)
        await setup.written(59)
        setup.add(b"60")
        await setup.written(60)
        copies = Counter(value for _, values in setup.broker.writes for value in values)
        assert max(copies.values()) <= 2
        assert copies[b"60"] == 1, "it is known now which record is refused"
        assert "" not in setup.troubles, "it is not over"

    running(story)


def test_trouble_with_a_record_that_was_never_taken_ends_with_its_lane() -> None:
    async def story(setup: Setup) -> None:
        lost = lane_state(1)
        setup.add(b"huge", state=lost)
        setup.add(b"2")
        await setup.written(1)
        lost.phase = LanePhase.GONE
        setup.add(b"3")
        await setup.written(2)
        assert setup.troubles[-1] == ""

    running(story)


def test_records_whose_lane_is_gone_are_forgotten() -> None:
    """The new owner of the lane reads them again."""

    async def story(setup: Setup) -> None:
        gone = lane_state(1)
        setup.add(b"1")
        setup.add(b"2", state=gone)
        setup.add(b"3")
        gone.phase = LanePhase.GONE
        await setup.written(2)
        assert setup.done == [b"1", b"3"]
        assert not setup.writer.busy

    running(story)
