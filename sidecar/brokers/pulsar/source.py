"""The contract's Source on Pulsar: the lanes of one group, and the checks that run beside consuming."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sidecar.brokers.base import LaneEnd, LaneEvent, Lost, Polled, SeekTarget, Source, SourceSpec, Trouble, is_pattern
from sidecar.brokers.fair_take import fair_take
from sidecar.brokers.pulsar import positions
from sidecar.brokers.pulsar.joining import JoinedLane, LaneJoiner, RejoinBackoff
from sidecar.brokers.pulsar.lane import PulsarLane
from sidecar.brokers.pulsar.stall_detector import StallDetector, UndeliveredMessages
from sidecar.brokers.pulsar.topics import LaneDiscovery
from sidecar.model.errors import BrokerError, LaneGone, NotFound, Refused, Unavailable
from sidecar.model.records import Assigned, Chunk, Commit, Lane
from sidecar.observability.logs import Log

if TYPE_CHECKING:
    from sidecar.brokers.pulsar.broker import PulsarBroker

log = Log("pulsar")

#: seconds between checks of the connections
_CONNECTION_INTERVAL = 1.0
#: seconds between measurements of the lanes: their ends, backlogs and gaps
_MEASURE_INTERVAL = 5.0


class PulsarSource(Source):
    """All state belongs to the event loop; each lane receives in a task of its own."""

    def __init__(self, broker: "PulsarBroker", spec: SourceSpec) -> None:
        options = broker.options
        self.spec = spec
        self._broker = broker
        self._discovery = LaneDiscovery(spec, options.namespace, broker.client, broker.admin)
        self._joiner = LaneJoiner(spec, options, broker.client, broker.admin)
        self._lanes: dict[Lane, PulsarLane] = {}
        self._ends: dict[Lane, LaneEnd] = {}
        #: of lanes that were joined again: messages before this position may have been delivered before
        self._had_before: dict[Lane, int] = {}
        self._events: list[LaneEvent] = []
        #: counts polls, so that each begins with another lane
        self._turn = 0
        self._wake = asyncio.Event()
        self._discovering = asyncio.Lock()
        #: lanes that were not connected at the last check
        self._disconnected: set[Lane] = set()
        self._rejoin_backoff = RejoinBackoff()
        #: the troubles that were reported, by kind
        self._troubles: dict[str, str] = {}
        self._stall_detector = StallDetector(self._joiner.consumer_name)
        self._undelivered = UndeliveredMessages()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        for topic, lanes in self.spec.own_topics.items():
            await self._broker.ensure_topic(topic, lanes)
        await self._discover()
        if not self._lanes and not self._has_patterns:
            raise NotFound(f"Pulsar: there are no topics {', '.join(self.spec.topics)}")
        self._tasks = [
            asyncio.create_task(self._repeat(_CONNECTION_INTERVAL, self._check_connections)),
            asyncio.create_task(self._repeat(self._broker.options.discover_every, self._check_lanes)),
            asyncio.create_task(self._repeat(_MEASURE_INTERVAL, self._measure)),
        ]

    async def poll(self, max_records: int, max_bytes: int, timeout: float) -> Polled:
        try:
            async with asyncio.timeout(timeout):
                while not self._events and not self._ready() and not self._failed():
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            pass
        if failed := self._failed():
            await self._rejoin(failed)
        # No `await` from here on, so that what is taken is returned.
        events, self._events = self._events, []
        return Polled(self._take(max_records, max_bytes), events)

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        # For a lane that was joined again, the core may commit what an earlier consumer had, until it gets the event.
        unreported = {lane for event in self._events for lane in _restarted_lanes(event)}
        mine = {lane: self._lanes[lane] for lane in commits if lane in self._lanes and lane not in unreported}
        await asyncio.gather(*(lane.ack(commits[lane.lane]) for lane in mine.values()))
        # Without a consumer nothing can be acked: it is delivered again, to whichever sidecar has the lane then.
        gone = [lane for lane in commits if lane not in mine or mine[lane].failed is not None]
        if gone:
            raise LaneGone(gone)

    async def release(self, lanes: Collection[Lane]) -> None:
        """Pulsar moves lanes without asking, so there is nothing to release."""

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
        if not self._broker.traits.seeks:
            kind = self._broker.options.subscription_type.value
            raise Refused(f"Pulsar: a lane of subscription_type {kind} is shared, and cannot be moved")
        unknown = [str(lane) for lane in lanes if lane not in self._lanes]
        if unknown:
            raise NotFound(f"Group {self.spec.group!r} has no lane {', '.join(unknown)}.")
        # A lane may fail at any time. Then it is joined again, as another object.
        asked = {lane: self._lanes[lane] for lane in lanes}
        ends: dict[Lane, int] = {}
        positions: dict[Lane, int] = {}
        for lane, target in lanes.items():
            found = self._ends[lane] = await self._broker.admin.lane_end(asked[lane].name)
            ends[lane], positions[lane] = found.end, await self._broker.resolve(asked[lane].name, found, target)
        for lane, position in positions.items():
            if self._lanes.get(lane) is asked[lane]:
                await asked[lane].seek(position, at_end=position >= ends[lane])
            if self._lanes.get(lane) is asked[lane]:
                self._tell(Assigned(lane, position))
        gone = [lane for lane, moved in asked.items() if self._lanes.get(lane) is not moved]
        if gone:
            raise LaneGone(gone)
        return positions

    async def ends(self) -> Mapping[Lane, LaneEnd]:
        return {
            lane: replace(ends, end=max(ends.end, self._lanes[lane].unacked.next))
            for lane, ends in self._ends.items()
            if lane in self._lanes
        }

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        lanes, self._lanes = self._lanes, {}
        await asyncio.gather(*(lane.close() for lane in lanes.values()))
        self._broker.exit(self)

    # Taking

    def _ready(self) -> list[PulsarLane]:
        return [lane for lane in self._lanes.values() if lane.ready]

    def _take(self, max_records: int, max_bytes: int) -> list[Chunk]:
        self._turn += 1
        return fair_take(self._ready(), self._turn, max_records, max_bytes, self._take_from)

    def _take_from(self, lane: PulsarLane, max_records: int, max_bytes: int, at_least: int) -> Chunk | None:
        possibly_processed = not self._broker.traits.tells_first_deliveries
        return lane.take(max_records, max_bytes, at_least=at_least, possibly_processed=possibly_processed)

    # Lanes

    @property
    def _has_patterns(self) -> bool:
        return any(is_pattern(topic) for topic in self.spec.topics)

    async def _discover(self) -> None:
        """Joins the lanes that are new."""
        # One call at a time: a lane that is joined twice would have a consumer that nobody receives from.
        async with self._discovering:
            found = await self._discovery.lanes()
            missing = found.keys() - self._lanes.keys()
            new = [(lane, found[lane]) for lane in found if lane in missing and lane not in self._rejoin_backoff]
            for joined in await self._joiner.join(new):
                self._assign(joined)

    def _assign(self, joined: JoinedLane) -> None:
        self._lanes[joined.lane] = PulsarLane(
            joined.lane,
            joined.name,
            joined.consumer,
            self._broker.client,
            start=joined.start,
            acked_before=joined.acked_before,
            had_before=self._had_before.get(joined.lane, 0),
            exclusive=self._broker.traits.lanes_are_exclusive,
            wake=self._wake.set,
        )
        if joined.ends is not None:
            self._ends[joined.lane] = joined.ends
        if joined.lane in self._had_before:
            self._rejoin_backoff.rejoined(joined.lane, asyncio.get_running_loop().time())
        self._tell(Assigned(joined.lane, joined.start, first=joined.first))

    def _failed(self) -> list[PulsarLane]:
        return [lane for lane in self._lanes.values() if lane.failed is not None]

    async def _rejoin(self, failed: list[PulsarLane]) -> None:
        """Reports lanes without a consumer as lost, and joins them again, unless they must wait."""
        for lane in failed:
            log.warning("joining a lane again", group=self.spec.group, lane=str(lane.lane), error=lane.failed)
            del self._lanes[lane.lane]
            self._had_before[lane.lane] = max(self._had_before.get(lane.lane, 0), lane.unacked.next)
            self._rejoin_backoff.failed(lane.lane, str(lane.failed), asyncio.get_running_loop().time())
            self._tell(Lost(frozenset((lane.lane,))))
            await lane.close()
        await self._discover()

    def _set_trouble(self, kind: str, text: str) -> None:
        """Reports a trouble when its text changes; empty: there is none."""
        if text != self._troubles.get(kind, ""):
            self._troubles[kind] = text
            self._tell(Trouble(kind, text))

    def _tell(self, event: LaneEvent) -> None:
        self._events.append(event)
        self._wake.set()

    # Checks beside consuming

    async def _repeat(self, every: float, check: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(every)
            try:
                await check()
            except Exception as error:
                # An unexpected answer must not silently end all later checks.
                log.bug("a check of Pulsar failed", error, group=self.spec.group)

    async def _check_connections(self) -> None:
        # Two checks in a row: a broker may close a connection at any time, and the library reconnects within a moment.
        before = self._disconnected
        self._disconnected = {lane for lane, joined in self._lanes.items() if not joined.is_connected}
        lost = [joined.name for lane, joined in self._lanes.items() if lane in before & self._disconnected]
        text = ""
        if lost:
            text = f"Pulsar: the connection is lost for {len(lost)} of {len(self._lanes)} lanes, such as {lost[0]}"
        self._set_trouble("connection", text)
        now = asyncio.get_running_loop().time()
        self._set_trouble("lanes", self._rejoin_backoff.trouble(now))
        if self._rejoin_backoff.end_waits(now):
            await self._check_lanes()

    async def _check_lanes(self) -> None:
        text = ""
        try:
            await self._discover()
        except BrokerError as error:
            text = f"looking for new lanes failed: {error}"
        self._set_trouble("discovery", text)

    async def _measure(self) -> None:
        for lane in [*self._lanes.values()]:
            with contextlib.suppress(BrokerError):
                last = await lane.last_id()
                end = positions.end(last.ledger_id(), last.entry_id(), last.batch_index())
                found = await self._broker.admin.subscription_stats(lane.name, self.spec.group)
                if lane.lane in self._ends:
                    backlog = found.backlog if found else -1
                    self._ends[lane.lane] = replace(self._ends[lane.lane], end=end, backlog=backlog)
                if found and lane.failed is None:
                    why = self._stall_detector.check(lane, found, end)
                    if why:
                        lane.failed = Unavailable(f"Pulsar: {why}")
                        self._wake.set()
                await self._check_gaps(lane)
        self._set_trouble("undelivered", self._undelivered.trouble(self._lanes))

    async def _check_gaps(self, lane: PulsarLane) -> None:
        """Mostly nothing is missing in a gap, and the broker's cursor has passed it: then acks are cumulative again."""
        acked_before = 0
        if lane.unacked.has_gaps:
            epoch = lane.epoch
            state = await self._broker.admin.topic_state(lane.name)
            if lane.epoch != epoch:
                return
            acked_before = state.cursors.get(self.spec.group, 0)
            lane.unacked.close_gaps(acked_before)
        self._undelivered.check(lane, acked_before)


def _restarted_lanes(event: LaneEvent) -> Collection[Lane]:
    """The lanes that a new consumer has, or that none has, since this event."""
    match event:
        case Lost(lanes):
            return lanes
        case Assigned(lane):
            return (lane,)
    return ()
