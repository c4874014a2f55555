"""Writing records aside: to the dead-letter topic or the retry topic. What is not written holds the commit back."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sidecar.brokers.base import Broker
from sidecar.core.failures.backoff import Backoff
from sidecar.core.state.lane import LanePhase
from sidecar.core.state.record_slices import RecordSlice
from sidecar.model.errors import BrokerError, NotFound, Refused, TooLarge
from sidecar.model.records import Message

#: messages of one write
_BATCH = 200
#: failures after which records are written also to a topic that could not be prepared: most of a minute
_TRIES = 10


@dataclass(frozen=True, slots=True, eq=False)
class PendingWrite:
    """One record to be written, and what it is written as."""

    slice_: RecordSlice
    message: Message
    #: when it is to come back, on the loop's clock, if it is to
    due: float = 0.0


class SideTopicWriter:
    """Writes to one topic in the order given, tries until it succeeds, and says when a record is durably aside.

    What the broker refuses is tried again now and then, and keeps no other record from being written. `done` is called
    with what was written; `trouble` with a sentence while writing fails, and with "" when it works again; `too_large`,
    if it is given, with a record that the topic will never take. Records whose lane is gone are forgotten: whoever has
    the lane now will see them again.
    """

    def __init__(
        self,
        broker: Broker,
        topic: str,
        lanes: int,
        backoff: Backoff,
        *,
        doing: str,
        done: Callable[[Sequence[PendingWrite]], None],
        trouble: Callable[[str], None],
        too_large: Callable[[PendingWrite], None] | None = None,
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._lanes = lanes
        self._backoff = backoff
        self._doing = doing
        self._done = done
        self._trouble = trouble
        self._too_large = too_large
        self._pending: deque[PendingWrite] = deque()
        #: those that the broker did not take alone. They go alone from then on: a write that fails may have been done
        #: in part, and its other records would be written again and again
        self._refused: deque[PendingWrite] = deque()
        #: since one of those was last taken
        self._refusals = 0
        #: when the first of those is tried again, on the loop's clock
        self._retry_at = 0.0
        #: the topic is as it should be, or takes records at least
        self._prepared = False
        self._wake = asyncio.Event()

    @property
    def busy(self) -> bool:
        """There is something to write that was not refused before."""
        return bool(self._pending)

    def add(self, aside: PendingWrite) -> None:
        self._pending.append(aside)
        self._wake.set()

    async def run(self) -> None:
        failures, troubled = 0, False
        #: so many of the next ones go alone: one of them was refused
        alone = 0
        while True:
            retried = self._retry_is_due()
            group = [self._refused[0]] if retried else self._next(1 if failures or alone else _BATCH)
            if not group:
                failures = alone = 0
            if troubled and not (failures or alone or self._refused):
                troubled = False
                self._trouble("")
            if not group:
                await self._something_to_do()
                continue
            if not retried:
                alone = max(0, alone - 1)
            try:
                if not self._prepared:
                    await self._prepare(failures)
                await self._write([aside.message for aside in group])
            except BrokerError as error:
                give_back = self._too_large if isinstance(error, TooLarge) else None
                if give_back is None:
                    troubled = True
                    self._trouble(
                        f"cannot {self._doing} records to {self._topic}: {error}. "
                        "Their commit is held back until it works."
                    )
                if not isinstance(error, Refused):
                    failures += 1
                    await asyncio.sleep(self._backoff.wait(failures))
                    continue
                if len(group) > 1:
                    alone = len(group)
                elif give_back is None:
                    self._was_refused(retried=retried)
                else:
                    (self._refused if retried else self._pending).popleft()
                    give_back(group[0])
                # There may be many, and a broker that refuses without asking anybody never waits.
                await asyncio.sleep(0)
                continue
            failures = 0
            self._prepared = True
            for _ in group:
                (self._refused if retried else self._pending).popleft()
            if retried:
                # What was in their way may be gone for all of them.
                self._refusals, self._retry_at = 0, 0.0
            self._done(group)

    async def _something_to_do(self) -> None:
        """Wait for a new record, or until one that was refused may be tried again."""
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._retry_at if self._refused else None):
                await self._wake.wait()

    def _retry_is_due(self) -> bool:
        """Whether the first of those that were refused goes next."""
        while self._refused and _is_gone(self._refused[0]):
            self._refused.popleft()
        if not self._refused or asyncio.get_running_loop().time() < self._retry_at:
            return False
        self._refused = deque(aside for aside in self._refused if not _is_gone(aside))
        return True

    def _was_refused(self, *, retried: bool) -> None:
        """The broker did not take the next one, alone: others go first now."""
        if retried:
            self._refused.rotate(-1)
        else:
            self._refused.append(self._pending.popleft())
            if len(self._refused) > 1:
                return
            self._refusals = 0
        self._refusals += 1
        self._retry_at = asyncio.get_running_loop().time() + self._backoff.wait(self._refusals)

    def _next(self, most: int) -> list[PendingWrite]:
        """The next ones, without those whose lane is gone."""
        while self._pending and _is_gone(self._pending[0]):
            self._pending.popleft()
        group: list[PendingWrite] = []
        for aside in self._pending:
            if len(group) == most or _is_gone(aside):
                break
            group.append(aside)
        return group

    async def _prepare(self, failures: int) -> None:
        """Before the first write: a broker that makes topics on the fly would not make it as it should be."""
        try:
            await self._broker.ensure_topic(self._topic, self._lanes)
        except Refused:
            # Somebody else may have made it. If not, the write will tell.
            pass
        except BrokerError:
            # Where topics are made by another API, that may be out of reach for good while writing works.
            if failures < _TRIES:
                raise

    async def _write(self, messages: Sequence[Message]) -> None:
        try:
            await self._publish(messages)
        except (NotFound, Refused) as error:
            last = None if isinstance(error, TooLarge) else await self._last_lane(messages)
            if last is None:
                raise
            # The topic was made with fewer lanes than are set now: the longest waits share its last one.
            await self._broker.publish(self._topic, [_up_to(last, message) for message in messages])

    async def _publish(self, messages: Sequence[Message]) -> None:
        try:
            await self._broker.publish(self._topic, messages)
        except NotFound:
            await self._broker.ensure_topic(self._topic, self._lanes)
            await self._broker.publish(self._topic, messages)

    async def _last_lane(self, messages: Sequence[Message]) -> int | None:
        """None if all messages are for lanes that the topic has, or if nobody can tell."""
        furthest = max((message.lane for message in messages if message.lane is not None), default=0)
        if not furthest:
            return None
        try:
            last = len(await self._broker.lane_ends(self._topic)) - 1
        except BrokerError:
            # Why they were not written says more than this.
            return None
        return last if 0 <= last < furthest else None


def _up_to(last: int, message: Message) -> Message:
    return message if message.lane is None else replace(message, lane=min(message.lane, last))


def _is_gone(aside: PendingWrite) -> bool:
    return aside.slice_.lane.phase is LanePhase.GONE
