"""Writes records aside: to the retry topic or the dead-letter topic. Until they are written their commit waits."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sidecar.brokers.base import Broker
from sidecar.core.failures.backoff import Backoff
from sidecar.core.state.lane import LanePhase
from sidecar.core.state.record_slices import RecordSlice
from sidecar.model.errors import BrokerError, NotFound, Refused, TooLarge
from sidecar.model.records import Message
from sidecar.subscription.events import SideTopic, SubscriptionEvents
from sidecar.subscription.troubles import Troubles

#: messages of one write
_BATCH = 200
#: failures after which records are also written to a topic that could not be prepared: most of a minute
_TRIES = 10
#: what goes wrong, in the sentence for operators
_VERBS = {SideTopic.RETRY: "park", SideTopic.DEAD_LETTERS: "dead-letter"}


@dataclass(frozen=True, slots=True, eq=False)
class PendingWrite:
    """One record that is to be written, and the message for it."""

    slice_: RecordSlice
    message: Message
    #: for the retry topic: when it is due again, on the loop's clock
    due: float = 0.0


class SideTopicWriter:
    """Writes to one topic, in the order of `add`, and retries until it succeeds. Reports records that are durable.

    A record that the broker refuses is retried now and then and holds up no other. One that is too large for the retry
    topic is reported and not retried. Records whose lane is gone are dropped: its new owner reads them again.
    """

    def __init__(
        self,
        topic: SideTopic,
        name: str,
        lanes: int,
        broker: Broker,
        backoff: Backoff,
        troubles: Troubles,
        events: SubscriptionEvents,
    ) -> None:
        self._topic = topic
        self._name = name
        self._lanes = lanes
        self._broker = broker
        self._backoff = backoff
        self._troubles = troubles
        self._events = events
        self._pending: deque[PendingWrite] = deque()
        #: records that the broker refused when they were written alone. They are always written alone from then on: a
        #: write that fails may have been done in part, and its other records would be written again and again
        self._refused: deque[PendingWrite] = deque()
        #: refusals since one of those was accepted
        self._refusals = 0
        #: when the first of those is retried, on the loop's clock
        self._retry_at = 0.0
        #: the topic was checked or created, or at least accepts records
        self._prepared = False
        self._wake = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Whether records are waiting that were not refused before."""
        return bool(self._pending)

    def add(self, write: PendingWrite) -> None:
        self._pending.append(write)
        self._wake.set()

    async def run(self) -> None:
        failures, troubled = 0, False
        #: how many of the next records are written alone: one of them was refused
        alone = 0
        while True:
            retried = self._retry_is_due()
            group = [self._refused[0]] if retried else self._next(1 if failures or alone else _BATCH)
            if not group:
                failures = alone = 0
            if troubled and not (failures or alone or self._refused):
                troubled = False
                self._troubles.clear(self._topic)
            if not group:
                await self._something_to_do()
                continue
            if not retried:
                alone = max(0, alone - 1)
            try:
                if not self._prepared:
                    await self._prepare(failures)
                await self._write([write.message for write in group])
            except BrokerError as error:
                give_back = isinstance(error, TooLarge) and self._topic is SideTopic.RETRY
                if not give_back:
                    troubled = True
                    self._troubles.set(
                        self._topic,
                        f"cannot {_VERBS[self._topic]} records to {self._name}: {error}. "
                        "Their commit is held back until it works.",
                    )
                if not isinstance(error, Refused):
                    failures += 1
                    await asyncio.sleep(self._backoff.wait(failures))
                    continue
                if len(group) > 1:
                    alone = len(group)
                elif give_back:
                    (self._refused if retried else self._pending).popleft()
                    self._events.too_large_to_park(group[0])
                else:
                    self._was_refused(retried=retried)
                # There may be many, and a broker that refuses locally never awaits.
                await asyncio.sleep(0)
                continue
            failures = 0
            self._prepared = True
            for _ in group:
                (self._refused if retried else self._pending).popleft()
            if retried:
                # The cause of the refusals may be gone for all of them.
                self._refusals, self._retry_at = 0, 0.0
            self._events.written_aside(self._topic, group)

    async def _something_to_do(self) -> None:
        """Wait for a new record, or until a refused one is to be retried."""
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._retry_at if self._refused else None):
                await self._wake.wait()

    def _retry_is_due(self) -> bool:
        """Whether the first of the refused records is written next."""
        while self._refused and _is_gone(self._refused[0]):
            self._refused.popleft()
        if not self._refused or asyncio.get_running_loop().time() < self._retry_at:
            return False
        self._refused = deque(write for write in self._refused if not _is_gone(write))
        return True

    def _was_refused(self, *, retried: bool) -> None:
        """The broker refused the next record, alone: others are written first now."""
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
        """The next records, up to the first whose lane is gone."""
        while self._pending and _is_gone(self._pending[0]):
            self._pending.popleft()
        group: list[PendingWrite] = []
        for write in self._pending:
            if len(group) == most or _is_gone(write):
                break
            group.append(write)
        return group

    async def _prepare(self, failures: int) -> None:
        """Before the first write: a topic that the broker creates on the fly would have its default settings."""
        try:
            await self._broker.ensure_topic(self._name, self._lanes)
        except Refused:
            # Somebody else may have created it. If not, the write fails.
            pass
        except BrokerError:
            # Where another API creates topics, it may stay out of reach while writing works.
            if failures < _TRIES:
                raise

    async def _write(self, messages: Sequence[Message]) -> None:
        try:
            await self._publish(messages)
        except (NotFound, Refused) as error:
            last = None if isinstance(error, TooLarge) else await self._last_lane(messages)
            if last is None:
                raise
            # The topic has fewer lanes than are configured now: the longest waits share its last one.
            await self._broker.publish(self._name, [_up_to(last, message) for message in messages])

    async def _publish(self, messages: Sequence[Message]) -> None:
        try:
            await self._broker.publish(self._name, messages)
        except NotFound:
            await self._broker.ensure_topic(self._name, self._lanes)
            await self._broker.publish(self._name, messages)

    async def _last_lane(self, messages: Sequence[Message]) -> int | None:
        """The last lane of the topic, if messages are for lanes beyond it; otherwise, or if not known, None."""
        furthest = max((message.lane for message in messages if message.lane is not None), default=0)
        if not furthest:
            return None
        try:
            last = len(await self._broker.lane_ends(self._name)) - 1
        except BrokerError:
            # The error of the write says more than this one.
            return None
        return last if 0 <= last < furthest else None


def _up_to(last: int, message: Message) -> Message:
    return message if message.lane is None else replace(message, lane=min(message.lane, last))


def _is_gone(write: PendingWrite) -> bool:
    return write.slice_.lane.phase is LanePhase.GONE
