"""Writing records aside: to the dead-letter topic or the retry topic. What is not written holds the commit back."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sidecar.brokers.base import Broker
from sidecar.errors import BrokerError, NotFound, Refused
from sidecar.lanes import LanePhase
from sidecar.model import Message
from sidecar.retry import Backoff
from sidecar.spans import Span

#: messages of one write
_BATCH = 200


@dataclass(frozen=True, slots=True, eq=False)
class Aside:
    """One record to be written, and what it is written as."""

    span: Span
    topic: str
    message: Message
    parked: bool


class AsideWriter:
    """Writes in the order given, tries until it succeeds, and says when a record is durably aside.

    `done` is called with what was written; `trouble` with a sentence while writing fails, and with "" when it
    works again. Records whose lane is gone are forgotten: whoever has the lane now will see them again.
    """

    def __init__(
        self,
        broker: Broker,
        own_topics: dict[str, int],
        backoff: Backoff,
        done: Callable[[Sequence[Aside]], None],
        trouble: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._own_topics = own_topics
        self._backoff = backoff
        self._done = done
        self._trouble = trouble
        self._pending: deque[Aside] = deque()
        #: those that the broker did not take alone. They go alone from then on: a write that fails may have been done
        #: in part, and its other records would be written again and again
        self._refused: set[Aside] = set()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, aside: Aside) -> None:
        self._pending.append(aside)
        self._wake.set()

    async def run(self) -> None:
        failures, troubled = 0, False
        #: so many of the next ones go alone: one of them was refused
        alone = 0
        while True:
            await self._wake.wait()
            group = self._next(1 if failures or alone else _BATCH)
            if not group:
                failures = alone = 0
            if troubled and not (failures or alone or self._refused):
                troubled = False
                self._trouble("")
            if not group:
                self._wake.clear()
                continue
            alone = max(0, alone - 1)
            try:
                await self._write(group)
            except BrokerError as error:
                failures, troubled = failures + 1, True
                what = "park" if group[0].parked else "dead-letter"
                self._trouble(
                    f"cannot {what} records to {group[0].topic}: {error}. Their commit is held back until it works."
                )
                if isinstance(error, Refused):
                    if len(group) > 1:
                        alone = len(group)
                    else:
                        # It must not keep the others from being written.
                        self._refused.add(group[0])
                        self._pending.rotate(-1)
                await asyncio.sleep(self._backoff.wait(failures))
                continue
            failures = 0
            for _ in group:
                self._forget_first()
            self._done(group)

    def _next(self, most: int) -> list[Aside]:
        """The next ones for one topic, without those whose lane is gone."""
        while self._pending and self._pending[0].span.lane.phase is LanePhase.GONE:
            self._forget_first()
        group: list[Aside] = []
        for aside in self._pending:
            if len(group) == most or (group and aside.topic != group[0].topic):
                break
            if aside.span.lane.phase is LanePhase.GONE or (group and aside in self._refused):
                break
            group.append(aside)
            if aside in self._refused:
                break
        return group

    def _forget_first(self) -> None:
        self._refused.discard(self._pending.popleft())

    async def _write(self, group: Sequence[Aside]) -> None:
        topic = group[0].topic
        messages = [aside.message for aside in group]
        try:
            await self._broker.publish(topic, messages)
        except NotFound:
            await self._broker.ensure_topic(topic, self._own_topics.get(topic, 1))
            await self._broker.publish(topic, messages)
