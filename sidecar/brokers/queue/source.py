"""The contract's Source on a broker with handles: the lanes of one group."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Generic

from sidecar.brokers.base import LaneEnd, LaneEvent, Lost, Polled, SeekTarget, Source, SourceSpec, Traits, Trouble
from sidecar.brokers.fair_take import fair_take
from sidecar.brokers.queue.driver import Driver, H
from sidecar.brokers.queue.lane import QueueLane
from sidecar.model.clock import Clock
from sidecar.model.errors import BrokerError, LaneGone, NotFound, Refused
from sidecar.model.records import Assigned, Chunk, Commit, Lane, Start
from sidecar.observability.logs import Log

log = Log("queue")

#: seconds between measurements of the lanes, and how many of these are between looks for new lanes
_MEASURE_INTERVAL = 5.0
_DISCOVER_EVERY = 6


class QueueSource(Source, Generic[H]):
    """All state belongs to the event loop; each lane receives in a task of its own."""

    def __init__(self, spec: SourceSpec, driver: Driver[H], traits: Traits, clock: Clock) -> None:
        self.spec = spec
        self._driver = driver
        self._traits = traits
        self._clock = clock
        self._lanes: dict[Lane, QueueLane[H]] = {}
        self._events: list[LaneEvent] = []
        #: counts polls, so that each begins with another lane
        self._turn = 0
        self._wake = asyncio.Event()
        #: the troubles that were reported, by kind
        self._troubles: dict[str, str] = {}
        self._measuring: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def open(self) -> None:
        for topic, lanes in self.spec.own_topics.items():
            await self._driver.ensure(topic, lanes)
        await self._discover()
        if self._measuring is None:
            self._measuring = asyncio.create_task(self._measure_all())

    async def poll(self, max_records: int, max_bytes: int, timeout: float) -> Polled:
        for lane in self._lanes.values():
            lane.size = max(1, max_bytes // len(self._lanes))
        try:
            async with asyncio.timeout(timeout):
                while not self._events and not self._ready():
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            pass
        # No `await` from here on, so that what is taken is returned.
        self._report_troubles()
        events, self._events = self._events, []
        return Polled(self._take(max_records, max_bytes), events)

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        # Until the core gets the event, it may commit what an earlier epoch delivered.
        unreported = {lane for event in self._events for lane in _restarted_lanes(event)}
        mine = [self._lanes[lane] for lane in commits if lane in self._lanes and lane not in unreported]
        results = await asyncio.gather(*(lane.ack(commits[lane.lane]) for lane in mine), return_exceptions=True)
        gone = commits.keys() - {lane.lane for lane in mine}
        for result in results:
            if isinstance(result, LaneGone):
                gone |= result.lanes
            elif isinstance(result, BaseException):
                raise result
        if gone:
            raise LaneGone(gone)

    async def release(self, lanes: Collection[Lane]) -> None:
        """Lanes never move, so there is nothing to release."""

    async def pause(self, lanes: Collection[Lane]) -> None:
        for lane in lanes:
            if lane in self._lanes:
                self._lanes[lane].pause()

    async def resume(self, lanes: Collection[Lane]) -> None:
        for lane in lanes:
            if lane in self._lanes:
                self._lanes[lane].resume()
        self._wake.set()

    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        raise Refused("this broker delivers what waits, and cannot be moved to a position")

    async def ends(self) -> Mapping[Lane, LaneEnd]:
        return {name: lane.end for name, lane in self._lanes.items() if lane.end is not None}

    async def close(self) -> None:
        self._closing.set()
        if self._measuring is not None:
            await asyncio.wait((self._measuring,))
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))

    # Taking

    def _ready(self) -> list[QueueLane[H]]:
        return [lane for lane in self._lanes.values() if lane.ready]

    def _take(self, max_records: int, max_bytes: int) -> list[Chunk]:
        self._turn += 1
        return fair_take(self._ready(), self._turn, max_records, max_bytes, QueueLane.take)

    # Lanes

    async def _discover(self) -> None:
        """Opens the lanes that are new."""
        for topic in (*self.spec.topics, *self.spec.own_topics):
            for number in range(await self._count(topic)):
                lane = Lane(topic, number)
                if lane not in self._lanes:
                    await self._open(lane)

    async def _count(self, topic: str) -> int:
        try:
            return await self._driver.lanes(topic)
        except NotFound:
            if not self._traits.creates_topics:
                raise
            await self._driver.ensure(topic, 1)
            return await self._driver.lanes(topic)

    async def _open(self, lane: Lane) -> None:
        # One that comes later was written to since: nothing in it may be passed over.
        start = self.spec.start if self._measuring is None else Start.EARLIEST
        spec = replace(self.spec, start=start)
        one = QueueLane(lane, spec, self._driver, self._traits, self._clock, self._tell, self._wake.set)
        await one.open()
        self._lanes[lane] = one
        one.start()

    def _tell(self, event: LaneEvent) -> None:
        self._events.append(event)
        self._wake.set()

    # Troubles, and checks beside consuming

    def _report_troubles(self) -> None:
        failing = [lane for lane in self._lanes.values() if lane.trouble]
        text = f"{len(failing)} of {len(self._lanes)} lanes do not receive: {failing[0].trouble}" if failing else ""
        found = {"connection": text}
        for lane in self._lanes.values():
            found |= {f"{kind} of {lane.lane}": text for kind, text in lane.troubles.items()}
        for kind in found.keys() | self._troubles.keys():
            self._set_trouble(kind, found.get(kind, ""))

    def _set_trouble(self, kind: str, text: str) -> None:
        """Reports a trouble when its text changes; empty: there is none."""
        if text != self._troubles.get(kind, ""):
            self._troubles[kind] = text
            self._events.append(Trouble(kind, text))

    async def _measure_all(self) -> None:
        turn = 0
        while not self._closing.is_set():
            turn += 1
            try:
                if turn % _DISCOVER_EVERY == 0:
                    await self._discover()
                for lane in [*self._lanes.values()]:
                    await lane.measure()
            except BrokerError:
                # What consumes reports it.
                pass
            except Exception as error:
                # An unexpected answer must not silently end all later checks.
                log.bug("a check of a queue failed", error, group=self.spec.group)
            try:
                async with asyncio.timeout(_MEASURE_INTERVAL):
                    await self._closing.wait()
            except TimeoutError:
                pass


def _restarted_lanes(event: LaneEvent) -> Collection[Lane]:
    """The lanes that a new receiver has, or that none has, since this event."""
    match event:
        case Lost(lanes):
            return lanes
        case Assigned(lane):
            return (lane,)
    return ()
