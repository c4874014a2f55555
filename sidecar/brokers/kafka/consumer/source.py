"""The contract's `Source`: consumes the topics of a subscription, and the retry topic that belongs to it."""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sidecar.brokers.base import LaneEnd, Polled, SeekTarget, Source, SourceSpec
from sidecar.brokers.kafka.consumer.group_member import GroupMember
from sidecar.brokers.kafka.poll_buffer import PollBuffer
from sidecar.model.errors import LaneGone, Refused
from sidecar.model.records import Commit, Lane, Run

if TYPE_CHECKING:
    from sidecar.brokers.kafka.broker import KafkaBroker


class KafkaSource(Source):
    """Two groups, since Kafka assigns the lanes of all topics of a group by their number alone: in one group with the
    retry topic, whose lanes are mostly idle, one pod could get nothing else, and another all the work."""

    def __init__(self, broker: "KafkaBroker", spec: SourceSpec) -> None:
        self.spec = spec
        self._broker = broker
        self._buffer = PollBuffer(self._on_filled)
        self._wake = asyncio.Event()
        self._signalled = False
        self._loop: asyncio.AbstractEventLoop
        self._main = GroupMember(broker, replace(spec, own_topics={}), self._buffer, self._wake)
        self._members = [self._main]
        if spec.own_topics:
            retry = SourceSpec(_retry_group(spec.group), (), own_topics=spec.own_topics)
            self._members.append(GroupMember(broker, retry, self._buffer, self._wake))
        self._opened: list[GroupMember] = []

    @property
    def trouble(self) -> str:
        """The problem with the connection; empty if there is none."""
        return next(filter(None, (member.health.connection for member in self._members)), "")

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        missing = await self._broker.prepare_topics(self.spec)
        for member in self._members:
            # The core opens the source again if one of them could not join.
            if member not in self._opened:
                await member.open()
                self._opened.append(member)
        for topic in missing:
            self._main.health.topic_missing(topic)

    async def poll(self, max_records: int, max_bytes: int, timeout: float) -> Polled:
        deadline = self._loop.time() + timeout
        while True:
            self._signalled = False
            self._wake.clear()
            polled = self._buffer.take(max_records, max_bytes) if self._buffer else Polled()
            for member in self._members:
                member.set_limits(max_records, max_bytes)
            if polled.chunks or polled.events:
                return polled
            failure = next(filter(None, (member.failure for member in self._members)), None)
            if failure is not None:
                raise type(failure)(*failure.args)
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()
            except TimeoutError:
                return Polled()

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        parts = [(member, {lane: commits[lane] for lane in lanes}) for member, lanes in self._by_member(commits)]
        if len(parts) == 1:
            member, part = parts[0]
            await member.commit(part)
            return
        gone: set[Lane] = set()
        results = await asyncio.gather(*(member.commit(part) for member, part in parts), return_exceptions=True)
        for (member, part), result in zip(parts, results, strict=True):
            if isinstance(result, LaneGone):
                gone |= result.lanes
            elif isinstance(result, Refused) and member is not self._main:
                # Retrying would hold up the other group until somebody grants the right. So these lanes are lost, and
                # start again when they can.
                member.restart_lanes(part)
                gone |= part.keys()
            elif isinstance(result, BaseException):
                raise result
        if gone:
            raise LaneGone(gone)

    async def release(self, lanes: Collection[Lane]) -> None:
        for member, mine in self._by_member(lanes):
            member.release(mine)

    async def pause(self, lanes: Collection[Lane]) -> None:
        for member, mine in self._by_member(lanes):
            member.pause(mine)

    async def resume(self, lanes: Collection[Lane]) -> None:
        for member, mine in self._by_member(lanes):
            member.resume(mine)

    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        positions: dict[Lane, int] = {}
        gone: set[Lane] = set()
        for member, mine in self._by_member(lanes):
            try:
                positions |= await member.seek({lane: lanes[lane] for lane in mine})
            except LaneGone as error:
                gone |= error.lanes
        if gone:
            raise LaneGone(gone)
        return positions

    async def ends(self) -> Mapping[Lane, LaneEnd]:
        self.refetched_bytes = sum(member.refetched_bytes for member in self._members)
        self.revoke_seconds = sum(member.revoke_seconds for member in self._members)
        return {lane: end for member in self._members for lane, end in member.ends().items()}

    async def left_behind(self) -> Mapping[Lane, Run]:
        """Of the group that consumes the retry topic alone: all that it has ever consumed were retry topics."""
        return await self._members[-1].left_behind() if self.spec.own_topics else {}

    async def close(self) -> None:
        self._broker.forget(self)
        await asyncio.gather(*(member.close() for member in self._members))

    def _by_member(self, lanes: Iterable[Lane]) -> Iterator[tuple[GroupMember, list[Lane]]]:
        main = [lane for lane in lanes if lane.topic not in self.spec.own_topics]
        own = [lane for lane in lanes if lane.topic in self.spec.own_topics]
        if main:
            yield self._main, main
        if own:
            yield self._members[-1], own

    def _on_filled(self) -> None:
        """On the poll thread of either group."""
        if not self._signalled:
            self._signalled = True
            # The loop may be closed already; then nobody waits.
            with contextlib.suppress(RuntimeError, AttributeError):
                self._loop.call_soon_threadsafe(self._wake.set)


def _retry_group(group: str) -> str:
    """The group that consumes the retry topic of a group."""
    return f"{group}.offramp.retry"
