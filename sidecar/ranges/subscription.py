"""A subscription that is read by ranges: it joins no group, fetches nothing by itself, and leases nothing.

The one owner of its group's cursor in this sidecar. Where the reader is, its own checkpoint says; who may commit, the
broker says. Nothing but a view for the status is kept here, so that any sidecar can take over at any time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping

from sidecar.brokers.base import Broker, LaneEnd, SeekTarget, SeekTo, SourceSpec
from sidecar.brokers.cursor import GroupState
from sidecar.brokers.fencing import Attached
from sidecar.model.clock import Clock
from sidecar.model.errors import BrokerError, InvalidRequest, Refused, Removed, Stopping, Unavailable, Unknown
from sidecar.model.records import Lane, Run, Start
from sidecar.observability.counters import Counters, Meters
from sidecar.observability.logs import Log
from sidecar.observability.status import SubscriptionState, SubscriptionStatus
from sidecar.ranges.planner import Limits, plan, turn_of
from sidecar.ranges.reader import LogReader
from sidecar.ranges.status_report import report_ranged
from sidecar.settings import SubscriptionSettings

log = Log("ranges")

#: seconds between looks at the broker, for the status
_LOOK = 2.0
#: seconds before the first new try to open, and the most between two
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 10.0
#: seconds that closing may take
_LAST = 5.0
_STARTS: Mapping[Start, SeekTarget] = {Start.EARLIEST: SeekTo.START, Start.LATEST: SeekTo.END}


class RangeSubscription:
    """See the module. `start` before anything else. Everything raises what the broker raises (`BrokerError`), and
    `Stopping` once the sidecar drains."""

    def __init__(self, settings: SubscriptionSettings, broker: Broker, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self.broker = broker
        self.clock = clock or Clock()
        self.counters = Counters()
        self.meters = Meters()
        self.log = LogReader(settings, broker, self.clock)
        #: a bug ended its loop: only a new process will help
        self.broken = ""
        self.draining = False
        self.paused_because = ""
        self._cursor = broker.cursor(SourceSpec(settings.group_name, settings.topics, settings.start))
        self._opened = False
        #: one control call at a time: none sees half of another
        self._turn = asyncio.Lock()
        self._reads = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._watcher: asyncio.Task[None] | None = None
        #: as last seen
        self._lanes: Mapping[Lane, LaneEnd] = {}
        self._standing = GroupState({}, None)
        self._failure: BrokerError | None = None

    # Life

    async def start(self) -> None:
        """Returns at once. Trouble with the broker shows in the status and is tried again."""
        self._watcher = asyncio.create_task(self._watch())
        self._watcher.add_done_callback(self._watch_ended)

    async def drain(self, deadline: float) -> None:
        """Take no more calls, and let ranges that are being read come to their end, within so many seconds."""
        self.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline):
                await self._idle.wait()
        await self.close()

    async def close(self) -> None:
        self.draining = True
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        # A call that waits for a broker that does not answer must not hold up the end.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST), self._turn:
                if self._opened:
                    self._opened = False
                    await self._cursor.close()

    # The reader

    async def attach(self, reader: str) -> tuple[Attached, Mapping[Lane, int]]:
        """The right to commit, and what is committed."""
        async with self._control():
            attached = await self._cursor.attach(reader, self.clock.wall_ms())
            self._standing = await self._cursor.fetch_state()
            log.info("a reader has attached", subscription=self.settings.name, client=reader)
            return attached, self._standing.positions

    async def resolve_start(self, token: int, target: SeekTarget | None) -> Mapping[Lane, int]:
        """Where a reader without a checkpoint starts, in every lane; pinned when this returns."""
        async with self._control():
            lanes = await self._look_at_lanes()
            known = (await self._cursor.fetch_state()).positions
            new = [lane for lane in lanes if lane not in known]
            starts: Mapping[Lane, int] = {lane: lanes[lane].start for lane in new}
            if new and not known:
                starts = await self._find(new, target or _STARTS[self.settings.start])
            await self._cursor.pin(_given(token), starts)
            # What the broker has now is the answer, whoever has pinned it.
            self._standing = await self._cursor.fetch_state()
            return {lane: self._standing.positions.get(lane, lanes[lane].start) for lane in lanes}

    async def plan(
        self, start: Mapping[Lane, int], limits: Limits, ceiling: Mapping[Lane, int]
    ) -> tuple[dict[Lane, int], Mapping[Lane, LaneEnd]]:
        """How far each lane may be read, and the lanes with their ends. Changes nothing."""
        async with self._control():
            lanes = await self._look_at_lanes()
        self._check_lanes({**start, **ceiling})
        until = {lane: start.get(lane, lanes[lane].start) for lane in lanes}
        runs: dict[Lane, Run] = {}
        for lane, position in start.items():
            end = await self.log.ends_for(lane, position, lanes[lane])
            # What was removed cannot be planned; that it was, whoever reads the range will be told.
            runs[lane] = Run(max(position, end.start), min(end.end, ceiling.get(lane, end.end)))
            removed = Run(position, min(end.start, ceiling.get(lane, end.start)))
            if removed.start < removed.stop and not self.paused_because:
                # Also if there is nothing else to read.
                until[lane] = await self._lost_until(lane, removed)
        runs = {lane: run for lane, run in runs.items() if run.start < run.stop and not self.paused_because}
        if runs:
            waiting = await self.broker.estimate(runs)
            sizes = await self.log.sizes(runs) if limits.bytes else {}
            until.update(plan(waiting, sizes, limits, turn=turn_of(start)))
        return until, lanes

    async def commit(self, token: int, positions: Mapping[Lane, int]) -> Mapping[Lane, int]:
        """What is committed then."""
        async with self._control():
            lanes = await self._look_at_lanes()
            self._check_lanes(positions)
            for lane, position in positions.items():
                await self.log.ends_for(lane, position, lanes[lane])
            try:
                async with asyncio.timeout(self.settings.commit_timeout):
                    await self._cursor.commit(_given(token), positions)
            except TimeoutError:
                self.counters.failed_commits += 1
                raise Unavailable("the broker has not taken the commit within commit_timeout") from None
            except BrokerError:
                self.counters.failed_commits += 1
                raise
            self.counters.commits += 1
            self._standing = await self._cursor.fetch_state()
            return self._standing.positions

    async def locate(self, topics: Collection[str], target: SeekTarget) -> Mapping[Lane, int]:
        """See `LogReading.locate`."""
        self._check_draining()
        return await self.log.locate(topics, target)

    async def locate_dead_letters(self, target: SeekTarget) -> Mapping[Lane, int]:
        """See `LogReading.locate_dead_letters`."""
        self._check_draining()
        return await self.log.locate_dead_letters(target)

    async def bounds(self, lane: Lane, run: Run) -> LaneEnd:
        """See `LogReading.bounds`."""
        self._check_draining()
        try:
            return await self.log.bounds(lane, run)
        except Removed:
            if (rest := await self._without_gap(lane, run)) == run:
                raise
            return await self.log.bounds(lane, rest)

    async def read(self, lane: Lane, run: Run, end: LaneEnd, max_bytes: int) -> AsyncIterator[list[bytes]]:
        """See `LogReading.read`."""
        self._check_draining()
        self._reads += 1
        self._idle.clear()
        try:
            if run.start < end.start:
                run = await self._without_gap(lane, run)
            async with contextlib.aclosing(self.log.read(lane, run, end, max_bytes)) as pieces:  # type: ignore[type-var]
                async for frames in pieces:
                    self.counters.delivered += len(frames)
                    yield frames
        finally:
            self._reads -= 1
            if not self._reads:
                self._idle.set()

    async def _lost_until(self, lane: Lane, removed: Run) -> int:
        """Where what was removed ends; where it starts if there was nothing."""
        return removed.stop if (await self._without_gap(lane, removed)).start < removed.stop else removed.start

    async def _without_gap(self, lane: Lane, run: Run) -> Run:
        """What seems to be removed was perhaps never there, which the group's cursor may know."""
        passed = await self._cursor.skip_gap(lane, run.start)
        return Run(min(max(passed, run.start), run.stop), run.stop)

    # Operators

    def pause(self, reason: str) -> None:
        """Plan nothing further until `resume`. What was planned can still be read."""
        self.paused_because = self.paused_because or reason or "by an operator"

    def resume(self) -> None:
        self.paused_because = ""

    def lanes(self) -> list[Lane]:
        """As last seen."""
        return [*self._lanes]

    @property
    def can_seek(self) -> bool:
        return True

    async def seek(self, targets: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        """Move what is committed, and so where a reader starts that has no checkpoint. One that is at work goes on
        where it is, and its next commit counts if it is further on."""
        async with self._control():
            await self._look_at_lanes()
            positions: dict[Lane, int] = {}
            for target in set(targets.values()):
                positions |= await self._find([lane for lane in targets if targets[lane] == target], target)
            await self._cursor.move(positions)
            self._standing = await self._cursor.fetch_state()
            return positions

    def status(self) -> SubscriptionStatus:
        return report_ranged(self, self._lanes, self._standing)

    @property
    def state(self) -> SubscriptionState:
        if self.draining:
            return SubscriptionState.DRAINING
        if self.broken or isinstance(self._failure, Refused):
            return SubscriptionState.FAILED
        if not self._opened:
            return SubscriptionState.STARTING
        return SubscriptionState.PAUSED if self.paused_because else SubscriptionState.RUNNING

    @property
    def troubles(self) -> list[str]:
        paused = f"paused: {self.paused_because}" if self.paused_because else ""
        return [text for text in (self.broken, str(self._failure or ""), paused) if text]

    # Within

    @contextlib.asynccontextmanager
    async def _control(self) -> AsyncIterator[None]:
        """One call at a time, on a cursor that is open."""
        self._check_draining()
        async with self._turn:
            self._check_draining()
            if not self._opened:
                await self._cursor.open()
                self._opened = True
            yield

    def _check_draining(self) -> None:
        if self.draining:
            raise Stopping("the sidecar is stopping; call again in a moment, or another one")

    async def _look_at_lanes(self) -> Mapping[Lane, LaneEnd]:
        self._lanes = await self._cursor.lanes()
        return self._lanes

    async def _find(self, lanes: list[Lane], target: SeekTarget) -> dict[Lane, int]:
        found: dict[Lane, int] = {}
        for topic in {lane.topic for lane in lanes}:
            found.update(await self.broker.locate(topic, target))
        # A lane that came in this very moment is all new.
        return {lane: found.get(lane, self._lanes[lane].start) for lane in lanes}

    def _check_lanes(self, positions: Mapping[Lane, int]) -> None:
        unknown = sorted(lane for lane in positions if lane not in self._lanes)
        if unknown:
            known = ", ".join(map(str, sorted(self._lanes))) or "none"
            raise Unknown(f"subscription {self.settings.name} has no lane {unknown[0]}; it has {known}")

    async def _watch(self) -> None:
        """Keeps the view for the status."""
        wait = _FIRST_WAIT
        while True:
            try:
                async with self._control():
                    lanes, standing = await self._cursor.lanes(), await self._cursor.fetch_state()
                    # Together, so that no status has the one without the other.
                    self._lanes, self._standing = lanes, standing
                self._note(None)
                wait = _FIRST_WAIT
                await asyncio.sleep(_LOOK)
            except BrokerError as error:
                self._note(error)
                await asyncio.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT)
            except Stopping:
                return

    def _note(self, failure: BrokerError | None) -> None:
        if str(failure) != str(self._failure):
            if failure is not None:
                log.warning("the group cannot be looked at", subscription=self.settings.name, error=failure)
            else:
                log.info("the group can be looked at again", subscription=self.settings.name)
        self._failure = failure

    def _watch_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.bug("the watch of a ranged subscription failed", error, subscription=self.settings.name)
            self.broken = f"the subscription stopped working: {error!r}"


def _given(token: int) -> int:
    if not token:
        raise InvalidRequest("token must be given: Attach answers one")
    return token
