"""Writing records aside: what is not written holds the commit back."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from sidecar.core.failures.backoff import Backoff
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.model.errors import BrokerError, NotFound, Refused, TooLarge, Unavailable
from sidecar.model.records import Message, Place
from sidecar.subscription.side_topic_writer import PendingWrite, SideTopicWriter
from tests.kit import NoJitter, lane_state, span_of
from tests.memory_broker import MemoryBroker
from tests.simulation.loop import VirtualLoop

TOPIC = "orders.offramp.dead"


class FailingBroker(MemoryBroker):
    """Raises what `failures` holds, one for each write, and then works. Never takes a record called `huge`.

    The same with `failures_to_make` for topics.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[BrokerError] = []
        self.failures_to_make: list[BrokerError] = []
        self.writes: list[tuple[str, list[bytes | None]]] = []
        self.made: list[tuple[str, int]] = []
        #: what stands before a record that is refused is written
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


class Desk:
    """An aside writer that runs, and what it said."""

    def __init__(self, *, gives_back: bool = False) -> None:
        self.broker = FailingBroker()
        self.done: list[bytes | None] = []
        self.troubles: list[str] = []
        self.changed = asyncio.Event()
        self.given_back: list[bytes | None] = []
        self.writer = SideTopicWriter(
            self.broker,
            TOPIC,
            8,
            Backoff(0.1, 2.0, 10.0, 0.0, NoJitter()),
            doing="dead-letter",
            done=self._done,
            trouble=self._trouble,
            too_large=(lambda aside: self.given_back.append(aside.message.value)) if gives_back else None,
        )

    def _done(self, written: Sequence[PendingWrite]) -> None:
        self.done += [aside.message.value for aside in written]
        self.changed.set()

    def _trouble(self, text: str) -> None:
        self.troubles.append(text)

    def add(self, value: bytes, *, state: LaneState | None = None) -> None:
        slice_ = span_of(1, state=state or lane_state())
        self.writer.add(PendingWrite(slice_, Message(None, value)))

    async def written(self, records: int) -> None:
        """Wait until so many are durably aside."""
        async with asyncio.timeout(10.0):
            while len(self.done) < records:
                self.changed.clear()
                await self.changed.wait()


def running(story: Callable[[Desk], Awaitable[None]], *, gives_back: bool = False) -> None:
    """In virtual time: what waits is not waited for."""

    async def run() -> None:
        desk = Desk(gives_back=gives_back)
        task = asyncio.create_task(desk.writer.run())
        try:
            await story(desk)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def test_records_are_written_together_in_the_order_given() -> None:
    async def story(desk: Desk) -> None:
        desk.add(b"1")
        desk.add(b"2")
        assert desk.writer.busy
        await desk.written(2)
        desk.add(b"3")
        await desk.written(3)
        assert desk.broker.writes == [(TOPIC, [b"1", b"2"]), (TOPIC, [b"3"])]
        assert desk.done == [b"1", b"2", b"3"]
        assert not desk.writer.busy

    running(story)


def test_a_write_is_tried_until_it_succeeds_and_only_then_is_it_done() -> None:
    async def story(desk: Desk) -> None:
        desk.broker.failures = [Unavailable("no leader"), Unavailable("no leader")]
        desk.add(b"1")
        await desk.written(1)
        assert desk.troubles == [
            f"cannot dead-letter records to {TOPIC}: no leader. Their commit is held back until it works.",
            f"cannot dead-letter records to {TOPIC}: no leader. Their commit is held back until it works.",
            "",
        ]

    running(story)


def test_a_topic_is_made_before_the_first_write_to_it_with_the_lanes_it_should_have() -> None:
    """A broker that makes topics on the fly would not make it as it should be."""

    async def story(desk: Desk) -> None:
        for number in range(3):
            desk.add(b"%d" % number)
            await desk.written(number + 1)
        assert desk.broker.made == [(TOPIC, 8)]
        assert desk.troubles == []

    running(story)


def test_a_topic_that_went_missing_is_made_again() -> None:
    async def story(desk: Desk) -> None:
        desk.add(b"1")
        await desk.written(1)
        desk.broker.failures = [NotFound("no such topic")]
        desk.add(b"2")
        await desk.written(2)
        assert desk.broker.made == [(TOPIC, 8)] * 2
        assert desk.troubles == []

    running(story)


def test_nothing_is_written_while_a_topic_cannot_be_made_for_the_moment() -> None:
    async def story(desk: Desk) -> None:
        desk.broker.failures_to_make = [Unavailable("no controller")] * 3
        desk.add(b"1")
        await desk.written(1)
        assert desk.broker.made == [(TOPIC, 8)]
        assert "no controller" in desk.troubles[0]

    running(story)


def test_a_topic_that_may_not_be_made_is_written_to_all_the_same() -> None:
    """Somebody has made it, or the write tells what is wrong."""

    async def story(desk: Desk) -> None:
        await desk.broker.ensure_topic(TOPIC, 8)
        desk.broker.failures_to_make = [Refused("no right to make topics")]
        desk.add(b"1")
        await desk.written(1)
        assert desk.troubles == []

    running(story)


def test_where_nobody_can_be_asked_to_make_topics_records_are_written_in_the_end() -> None:
    async def story(desk: Desk) -> None:
        await desk.broker.ensure_topic(TOPIC, 8)
        desk.broker.failures_to_make = [Unavailable("nobody listens there")] * 1000
        desk.add(b"1")
        await asyncio.sleep(60.0)
        assert desk.done == [b"1"]
        began = asyncio.get_running_loop().time()
        desk.add(b"2")
        await desk.written(2)
        assert asyncio.get_running_loop().time() == began, "it is asked no more"

    running(story)


def test_a_record_that_the_broker_never_takes_does_not_keep_others_from_being_written() -> None:
    async def story(desk: Desk) -> None:
        desk.add(b"huge")
        desk.add(b"2")
        desk.add(b"3")
        await desk.written(2)
        assert sorted(filter(None, desk.done)) == [b"2", b"3"]
        assert not desk.writer.busy, "nobody waits for it"
        assert any("larger than the topic takes" in trouble for trouble in desk.troubles)

    running(story)


def test_a_record_that_is_too_large_is_given_back_where_it_can_be() -> None:
    async def story(desk: Desk) -> None:
        for value in (b"1", b"huge", b"2"):
            desk.add(value)
        await desk.written(2)
        assert desk.done == [b"1", b"2"]
        assert desk.given_back == [b"huge"]
        assert desk.troubles == []

    running(story, gives_back=True)


def test_so_is_one_that_was_refused_for_another_reason_before() -> None:
    async def story(desk: Desk) -> None:
        desk.broker.failures = [Refused("no right to write")]
        desk.add(b"huge")
        await asyncio.sleep(60.0)
        assert desk.given_back == [b"huge"]
        desk.add(b"1")
        await desk.written(1)
        assert desk.done == [b"1"]

    running(story, gives_back=True)


def test_records_that_are_refused_keep_no_other_waiting_however_many_they_are() -> None:
    async def story(desk: Desk) -> None:
        for _ in range(300):
            desk.add(b"huge")
        await asyncio.sleep(60.0)
        began = asyncio.get_running_loop().time()
        desk.add(b"parked")
        await desk.written(1)
        assert asyncio.get_running_loop().time() == began

    running(story)


def test_once_a_refused_record_is_taken_the_others_are_tried_at_once() -> None:
    async def story(desk: Desk) -> None:
        for _ in range(300):
            desk.add(b"huge")
        await asyncio.sleep(60.0)
        desk.broker.takes_all = True
        began = asyncio.get_running_loop().time()
        await desk.written(300)
        assert asyncio.get_running_loop().time() - began <= 10.0
        await asyncio.sleep(0)
        assert desk.troubles[-1] == ""

    running(story)


def test_what_was_refused_is_tried_again_while_others_keep_coming() -> None:
    async def story(desk: Desk) -> None:
        desk.add(b"huge")
        await asyncio.sleep(1.0)
        desk.broker.takes_all = True
        for number in range(100):
            desk.add(b"%d" % number)
            await asyncio.sleep(0.1)
        assert b"huge" in desk.done

    running(story)


def test_a_refused_record_is_forgotten_with_its_lane_also_behind_others() -> None:
    async def story(desk: Desk) -> None:
        gone = lane_state(1)
        desk.add(b"huge")
        desk.add(b"huge", state=gone)
        await asyncio.sleep(1.0)
        gone.phase = LanePhase.GONE
        desk.broker.takes_all = True
        await asyncio.sleep(60.0)
        assert desk.done == [b"huge"]

    running(story)


def test_beside_a_record_that_the_broker_never_takes_nothing_is_written_more_than_twice() -> None:
    """A write that fails may have been done in part, and each part that is done again is a copy."""

    async def story(desk: Desk) -> None:
        desk.broker.in_part = True
        for number in range(60):
            desk.add(b"huge" if number == 40 else b"%d" % number)
        await desk.written(59)
        desk.add(b"60")
        await desk.written(60)
        copies = Counter(value for _, values in desk.broker.writes for value in values)
        assert max(copies.values()) <= 2
        assert copies[b"60"] == 1, "by now it is known which one to leave out"
        assert "" not in desk.troubles, "it is not over"

    running(story)


def test_trouble_with_a_record_that_was_never_taken_ends_with_its_lane() -> None:
    async def story(desk: Desk) -> None:
        lost = lane_state(1)
        desk.add(b"huge", state=lost)
        desk.add(b"2")
        await desk.written(1)
        lost.phase = LanePhase.GONE
        desk.add(b"3")
        await desk.written(2)
        assert desk.troubles[-1] == ""

    running(story)


def test_records_whose_lane_is_gone_are_forgotten() -> None:
    """Whoever has the lane now will see them again."""

    async def story(desk: Desk) -> None:
        gone = lane_state(1)
        desk.add(b"1")
        desk.add(b"2", state=gone)
        desk.add(b"3")
        gone.phase = LanePhase.GONE
        await desk.written(2)
        assert desk.done == [b"1", b"3"]
        assert not desk.writer.busy

    running(story)
