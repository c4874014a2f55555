"""A subscription's consumption of Kafka: of its topics, and of the retry topic that is its own."""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sidecar.brokers.base import LaneEnd, Polled, SeekTarget, Source, SourceSpec
from sidecar.brokers.kafka.consumer.group_member import Group
from sidecar.brokers.kafka.joining import prepare_topics
from sidecar.brokers.kafka.poll_buffer import Shelf
from sidecar.model.errors import LaneGone, Refused
from sidecar.model.records import Commit, Lane

if TYPE_CHECKING:
    from sidecar.brokers.kafka.broker import KafkaBroker


class KafkaSource(Source):
    """Two groups, since members of a group share out the lanes of all its topics by their number alone: with those of
    the retry topic among them, which are idle mostly, one pod could get nothing else, and another all the work."""

    def __init__(self, broker: "KafkaBroker", spec: SourceSpec) -> None:
        self.spec = spec
        self._broker = broker
        self._shelf = Shelf(self._stocked)
        self._wake = asyncio.Event()
        self._signalled = False
        self._loop: asyncio.AbstractEventLoop
        self._main = Group(broker, replace(spec, own_topics={}), self._shelf, self._wake)
        self._groups = [self._main]
        if spec.own_topics:
            own = SourceSpec(retry_group(spec.group), (), own_topics=spec.own_topics)
            self._groups.append(Group(broker, own, self._shelf, self._wake))
        self._opened: list[Group] = []

    @property
    def trouble(self) -> str:
        """What is wrong with the connection; empty if nothing is."""
        return next(filter(None, (group.health.connection for group in self._groups)), "")

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        missing = await prepare_topics(self._broker, self.spec)
        for group in self._groups:
            # It is called again if one of them could not join.
            if group not in self._opened:
                await group.open()
                self._opened.append(group)
        for topic in missing:
            self._main.health.missing(topic)

    async def poll(self, max_records: int, max_bytes: int, timeout: float) -> Polled:
        deadline = self._loop.time() + timeout
        while True:
            self._signalled = False
            self._wake.clear()
            polled = self._shelf.take(max_records, max_bytes) if self._shelf else Polled()
            for group in self._groups:
                group.want(max_records, max_bytes)
            if polled.chunks or polled.events:
                return polled
            failure = next(filter(None, (group.failure for group in self._groups)), None)
            if failure is not None:
                raise type(failure)(*failure.args)
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()
            except TimeoutError:
                return Polled()

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        parts = [(group, {lane: commits[lane] for lane in lanes}) for group, lanes in self._by_group(commits)]
        if len(parts) == 1:
            group, part = parts[0]
            await group.commit(part)
            return
        gone: set[Lane] = set()
        answers = await asyncio.gather(*(group.commit(part) for group, part in parts), return_exceptions=True)
        for (group, part), answer in zip(parts, answers, strict=True):
            if isinstance(answer, LaneGone):
                gone |= answer.lanes
            elif isinstance(answer, Refused) and group is not self._main:
                # Until somebody mends it, the others would be held up: so these are lost, and begin anew when they can.
                group.begin_anew(part)
                gone |= part.keys()
            elif isinstance(answer, BaseException):
                raise answer
        if gone:
            raise LaneGone(gone)

    async def release(self, lanes: Collection[Lane]) -> None:
        for group, mine in self._by_group(lanes):
            group.release(mine)

    async def pause(self, lanes: Collection[Lane]) -> None:
        for group, mine in self._by_group(lanes):
            group.pause(mine)

    async def resume(self, lanes: Collection[Lane]) -> None:
        for group, mine in self._by_group(lanes):
            group.resume(mine)

    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        positions: dict[Lane, int] = {}
        gone: set[Lane] = set()
        for group, mine in self._by_group(lanes):
            try:
                positions |= await group.seek({lane: lanes[lane] for lane in mine})
            except LaneGone as error:
                gone |= error.lanes
        if gone:
            raise LaneGone(gone)
        return positions

    async def ends(self) -> Mapping[Lane, LaneEnd]:
        self.refetched_bytes = sum(group.refetched_bytes for group in self._groups)
        self.revoke_seconds = sum(group.revoke_seconds for group in self._groups)
        return {lane: end for group in self._groups for lane, end in group.ends().items()}

    async def close(self) -> None:
        self._broker.exit(self)
        await asyncio.gather(*(group.close() for group in self._groups))

    def _by_group(self, lanes: Iterable[Lane]) -> Iterator[tuple[Group, list[Lane]]]:
        own = [lane for lane in lanes if lane.topic in self.spec.own_topics]
        main = [lane for lane in lanes if lane.topic not in self.spec.own_topics]
        if main:
            yield self._main, main
        if own:
            yield self._groups[-1], own

    def _stocked(self) -> None:
        """On the poll thread of either group."""
        if not self._signalled:
            self._signalled = True
            # The loop may be closed already: then nobody waits.
            with contextlib.suppress(RuntimeError, AttributeError):
                self._loop.call_soon_threadsafe(self._wake.set)


def retry_group(group: str) -> str:
    """The group that consumes the retry topic of a group."""
    return f"{group}.offramp.retry"
