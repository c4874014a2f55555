"""Writing records aside: what is not written holds the commit back."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from sidecar.aside import Aside, AsideWriter
from sidecar.brokers.memory import MemoryBroker
from sidecar.errors import BrokerError, NotFound, TooLarge, Unavailable
from sidecar.lanes import LanePhase, LaneState
from sidecar.model import Message, Place
from sidecar.retry import Backoff
from tests.kit import NoJitter, lane_state, span_of

DEAD, RETRY = "orders.offramp.dead", "orders.offramp.retry"


class FailingBroker(MemoryBroker):
    """Raises what `failures` holds, one for each write, and then works. Never takes a record called `huge`."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[BrokerError] = []
        self.writes: list[tuple[str, list[bytes | None]]] = []
        self.made: list[tuple[str, int]] = []
        #: what stands before a record that is refused is written
        self.in_part = False

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        if self.failures:
            raise self.failures.pop(0)
        values = [message.value for message in messages]
        if b"huge" in values:
            if self.in_part:
                self.writes.append((topic, values[: values.index(b"huge")]))
            raise TooLarge("it is larger than the topic takes")
        self.writes.append((topic, values))
        return await super().publish(topic, messages)

    async def ensure_topic(self, topic: str, lanes: int) -> None:
        self.made.append((topic, lanes))
        await super().ensure_topic(topic, lanes)


class Desk:
    """An aside writer that runs, and what it said."""

    def __init__(self) -> None:
        self.broker = FailingBroker()
        self.done: list[bytes | None] = []
        self.troubles: list[str] = []
        self.changed = asyncio.Event()
        self.writer = AsideWriter(
            self.broker, {RETRY: 8, DEAD: 1}, Backoff(0.0, 1.0, 0.0, 0.0, NoJitter()), self._done, self._trouble
        )

    def _done(self, written: Sequence[Aside]) -> None:
        self.done += [aside.message.value for aside in written]
        self.changed.set()

    def _trouble(self, text: str) -> None:
        self.troubles.append(text)

    def add(self, value: bytes, *, topic: str = DEAD, state: LaneState | None = None) -> None:
        span = span_of(1, state=state or lane_state())
        self.writer.add(Aside(span, topic, Message(None, value), parked=topic == RETRY))

    async def written(self, records: int) -> None:
        """Wait until so many are durably aside."""
        async with asyncio.timeout(10.0):
            while len(self.done) < records:
                self.changed.clear()
                await self.changed.wait()


def running(story: Callable[[Desk], Awaitable[None]]) -> None:
    async def run() -> None:
        desk = Desk()
        task = asyncio.create_task(desk.writer.run())
        try:
            await story(desk)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_records_for_one_topic_are_written_together_in_the_order_given() -> None:
    async def story(desk: Desk) -> None:
        desk.add(b"1")
        desk.add(b"2")
        desk.add(b"3", topic=RETRY)
        desk.add(b"4")
        await desk.written(4)
        assert desk.broker.writes == [(DEAD, [b"1", b"2"]), (RETRY, [b"3"]), (DEAD, [b"4"])]
        assert desk.done == [b"1", b"2", b"3", b"4"]
        assert len(desk.writer) == 0

    running(story)


def test_a_write_is_tried_until_it_succeeds_and_only_then_is_it_done() -> None:
    async def story(desk: Desk) -> None:
        desk.broker.failures = [Unavailable("no leader"), Unavailable("no leader")]
        desk.add(b"1")
        await desk.written(1)
        assert desk.troubles == [
            f"cannot dead-letter records to {DEAD}: no leader. Their commit is held back until it works.",
            f"cannot dead-letter records to {DEAD}: no leader. Their commit is held back until it works.",
            "",
        ]

    running(story)


def test_a_topic_that_is_missing_is_made_with_the_lanes_it_should_have() -> None:
    async def story(desk: Desk) -> None:
        desk.broker.failures = [NotFound("no such topic")]
        desk.add(b"1", topic=RETRY)
        await desk.written(1)
        assert desk.broker.made == [(RETRY, 8)]
        assert desk.troubles == []

    running(story)


def test_a_record_that_the_broker_never_takes_does_not_keep_others_from_being_written() -> None:
    async def story(desk: Desk) -> None:
        desk.add(b"huge")
        desk.add(b"2")
        desk.add(b"3")
        await desk.written(2)
        assert sorted(filter(None, desk.done)) == [b"2", b"3"]
        assert len(desk.writer) == 1, "it still holds the commit back"
        assert any("larger than the topic takes" in trouble for trouble in desk.troubles)

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
        assert len(desk.writer) == 0

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
        assert len(desk.writer) == 0

    running(story)
