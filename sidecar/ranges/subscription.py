"""A subscription with mode `ranges`: it joins no group, fetches nothing by itself and grants no leases.

It owns the cursor of its group in this sidecar. The reader's own checkpoint says where the reader is; the broker says
who may commit. Only a view for the status is kept here, so that any sidecar can take over at any time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping

from sidecar.brokers.base import Broker, LaneEnd, SeekTarget, SeekTo, SourceSpec
from sidecar.brokers.fencing import Attached, check_token
from sidecar.brokers.range_cursor import GroupState
from sidecar.model.clock import Clock
from sidecar.model.errors import BrokerError, InvalidRequest, Refused, Removed, Stopping, Unavailable, Unknown
from sidecar.model.reasons import Reason
from sidecar.model.records import Chunk, Lane, Run, Start
from sidecar.observability.counters import Counters, Meters
from sidecar.observability.logs import Log
from sidecar.observability.status import LaneStatus, ReaderStatus, SubscriptionState, SubscriptionStatus
from sidecar.ranges.planner import Limits, plan, rotation_seed
from sidecar.ranges.reader import LogReader, never
from sidecar.settings import SubscriptionSettings

log = Log("ranges")

#: seconds between updates of the view for the status
_WATCH_INTERVAL = 2.0
#: seconds before the first retry of an update that failed, and the longest wait
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 10.0
#: seconds that closing may take
_CLOSE_TIMEOUT = 5.0
_STARTS: Mapping[Start, SeekTarget] = {Start.EARLIEST: SeekTo.START, Start.LATEST: SeekTo.END}


class RangeSubscription:
    """`start` before anything else. All calls of readers raise what the broker raises (`BrokerError`), and `Stopping`
    once the sidecar drains."""

    def __init__(self, settings: SubscriptionSettings, broker: Broker, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self.broker = broker
        self.clock = clock or Clock()
        self.counters = Counters()
        self.meters = Meters()
        self.log = LogReader(settings, broker, self.clock)
        #: a bug ended its loop: only a restart of the process helps
        self.broken = ""
        self.draining = False
        self.paused_because = ""
        self._cursor = broker.cursor(SourceSpec(settings.group_name, settings.topics, settings.start))
        self._opened = False
        #: one control call at a time, so that none sees another half done
        self._turn = asyncio.Lock()
        self._reads = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._watcher: asyncio.Task[None] | None = None
        #: as last seen
        self._lanes: Mapping[Lane, LaneEnd] = {}
        self._group = GroupState({}, None)
        self._failure: BrokerError | None = None

    # Life

    async def start(self) -> None:
        """Returns at once. Trouble with the broker shows in the status and is retried."""
        self._watcher = asyncio.create_task(self._watch())
        self._watcher.add_done_callback(self._watch_ended)

    async def drain(self, deadline: float) -> None:
        """Accept no more calls, and let reads finish, within this many seconds."""
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
        # A call that waits for a broker which does not respond must not hold up the end.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT), self._turn:
                if self._opened:
                    self._opened = False
                    await self._cursor.close()

    # The reader

    async def attach(self, reader: str) -> tuple[Attached, Mapping[Lane, int]]:
        """Gives the reader the right to commit. Returns it with the committed positions."""
        async with self._control():
            attached = await self._cursor.attach(reader, self.clock.wall_ms())
            self._group = await self._cursor.fetch_state()
            log.info("a reader has attached", subscription=self.settings.name, client=reader)
            return attached, self._group.positions

    async def resolve_start(self, token: int, target: SeekTarget | None) -> Mapping[Lane, int]:
        """Where a reader without a checkpoint starts in each lane. Stored at the broker when this returns."""
        async with self._control():
            lanes = await self._refresh_lanes()
            known = (await self._cursor.fetch_state()).positions
            new = [lane for lane in lanes if lane not in known]
            starts: Mapping[Lane, int] = {lane: lanes[lane].start for lane in new}
            if new and not known:
                starts = await self._find(new, target or _STARTS[self.settings.start])
            await self._cursor.pin(_required(token), starts)
            # What the broker has now counts, whoever has stored it.
            self._group = await self._cursor.fetch_state()
            return {lane: self._group.positions.get(lane, lanes[lane].start) for lane in lanes}

    async def plan(
        self, token: int, start: Mapping[Lane, int], limits: Limits, ceiling: Mapping[Lane, int]
    ) -> tuple[dict[Lane, int], Mapping[Lane, LaneEnd]]:
        """How far each lane may be read, and the ends of all lanes. Changes nothing. A token of 0 is not checked."""
        async with self._control():
            if token:
                check_token(token, (await self._cursor.fetch_state()).attached, exact=False)
            lanes = await self._refresh_lanes()
        self._check_lanes({**start, **ceiling})
        until = {lane: start.get(lane, lanes[lane].start) for lane in lanes}
        runs: dict[Lane, Run] = {}
        for lane, position in start.items():
            end = await self.log.ends_for(lane, position, lanes[lane])
            # Records that were removed cannot be planned. Reading the range reports them.
            runs[lane] = Run(max(position, end.start), min(end.end, ceiling.get(lane, end.end)))
            removed = Run(position, min(end.start, ceiling.get(lane, end.start)))
            if removed.start < removed.stop and not self.paused_because:
                # Even if there is nothing else to read.
                until[lane] = await self._end_of_removed(lane, removed)
        runs = {lane: run for lane, run in runs.items() if run.start < run.stop and not self.paused_because}
        if runs:
            waiting = await self.broker.estimate(runs)
            sizes = await self.log.sizes(runs) if limits.bytes else {}
            until.update(plan(waiting, sizes, limits, turn=rotation_seed(start)))
        return until, lanes

    async def commit(self, token: int, positions: Mapping[Lane, int]) -> Mapping[Lane, int]:
        """Returns the committed positions."""
        async with self._control():
            lanes = await self._refresh_lanes()
            self._check_lanes(positions)
            for lane, position in positions.items():
                await self.log.ends_for(lane, position, lanes[lane])
            try:
                async with asyncio.timeout(self.settings.commit_timeout):
                    await self._cursor.commit(_required(token), positions)
            except TimeoutError:
                self.counters.failed_commits += 1
                raise Unavailable("the broker has not accepted the commit within commit_timeout") from None
            except BrokerError:
                self.counters.failed_commits += 1
                raise
            self.counters.commits += 1
            self._group = await self._cursor.fetch_state()
            return self._group.positions

    async def locate(self, topics: Collection[str], target: SeekTarget) -> Mapping[Lane, int]:
        """See `LogReader.locate`."""
        self._check_draining()
        return await self.log.locate(topics, target)

    async def locate_dead_letters(self, target: SeekTarget) -> Mapping[Lane, int]:
        """See `LogReader.locate_dead_letters`."""
        self._check_draining()
        return await self.log.locate_dead_letters(target)

    async def bounds(self, lane: Lane, run: Run) -> LaneEnd:
        """See `LogReader.bounds`."""
        self._check_draining()
        try:
            return await self.log.bounds(lane, run)
        except Removed:
            if (rest := await self._without_gap(lane, run)) == run:
                raise
            return await self.log.bounds(lane, rest)

    async def read(
        self, lane: Lane, run: Run, end: LaneEnd, max_bytes: int, interrupted: Callable[[], bool] = never
    ) -> AsyncIterator[Chunk]:
        """See `LogReader.read`."""
        self._check_draining()
        self._reads += 1
        self._idle.clear()
        try:
            if run.start < end.start:
                run = await self._without_gap(lane, run)
            async with contextlib.aclosing(self.log.read(lane, run, end, max_bytes, interrupted)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    self.counters.delivered += len(chunk.frames)
                    yield chunk
        finally:
            self._reads -= 1
            if not self._reads:
                self._idle.set()

    async def _end_of_removed(self, lane: Lane, removed: Run) -> int:
        """The end of a run that seems to be removed; its start if there never was anything in it."""
        return removed.stop if (await self._without_gap(lane, removed)).start < removed.stop else removed.start

    async def _without_gap(self, lane: Lane, run: Run) -> Run:
        """The run without a gap at its start. What seems to be removed may be a gap that the group's cursor knows."""
        passed = await self._cursor.skip_gap(lane, run.start)
        return Run(min(max(passed, run.start), run.stop), run.stop)

    # Operators

    def pause(self, reason: str) -> None:
        """Plan nothing until `resume`. What was planned can still be read."""
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
        """Move the committed positions, and so the start of a reader without a checkpoint. A reader that is at work
        goes on where it is, and its next commit counts if it is further on."""
        async with self._control():
            await self._refresh_lanes()
            positions: dict[Lane, int] = {}
            for target in set(targets.values()):
                positions |= await self._find([lane for lane in targets if targets[lane] == target], target)
            await self._cursor.move(positions)
            self._group = await self._cursor.fetch_state()
            return positions

    def status(self) -> SubscriptionStatus:
        counts = self.broker.traits.positions_count_records
        attached = self._group.attached
        return SubscriptionStatus(
            name=self.settings.name,
            broker=self.settings.broker,
            group=self.settings.group_name,
            topics=self.settings.topics,
            order=self.settings.order,
            mode=self.settings.mode,
            state=self.state,
            trouble=tuple(self.troubles),
            lanes=tuple(
                _lane_status(lane, end, self._group.positions.get(lane, -1), counts=counts)
                for lane, end in sorted(self._lanes.items())
            ),
            counters=self.counters.snapshot(),
            reader=_reader_status(attached, self.clock.wall_ms()) if attached else None,
        )

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
        """One sentence for each current problem."""
        paused = f"paused: {self.paused_because}" if self.paused_because else ""
        return [text for text in (self.broken, str(self._failure or ""), paused) if text]

    # Within

    @contextlib.asynccontextmanager
    async def _control(self) -> AsyncIterator[None]:
        """One call at a time, with the cursor open."""
        self._check_draining()
        async with self._turn:
            self._check_draining()
            if not self._opened:
                await self._cursor.open()
                self._opened = True
            yield

    def _check_draining(self) -> None:
        if self.draining:
            raise Stopping("the sidecar is stopping; call again in a moment, or call another one")

    async def _refresh_lanes(self) -> Mapping[Lane, LaneEnd]:
        self._lanes = await self._cursor.lanes()
        return self._lanes

    async def _find(self, lanes: list[Lane], target: SeekTarget) -> dict[Lane, int]:
        found: dict[Lane, int] = {}
        for topic in {lane.topic for lane in lanes}:
            found.update(await self.broker.locate(topic, target))
        # A lane that was created just now is all new.
        return {lane: found.get(lane, self._lanes[lane].start) for lane in lanes}

    def _check_lanes(self, positions: Mapping[Lane, int]) -> None:
        unknown = sorted(lane for lane in positions if lane not in self._lanes)
        if unknown:
            known = ", ".join(map(str, sorted(self._lanes))) or "none"
            raise Unknown(
                f"subscription {self.settings.name} has no lane {unknown[0]}; it has {known}", Reason.LANE_NOT_FOUND
            )

    async def _watch(self) -> None:
        """Updates the view for the status."""
        wait = _FIRST_WAIT
        while True:
            try:
                async with self._control():
                    lanes, group = await self._cursor.lanes(), await self._cursor.fetch_state()
                    # Both at once, so that no status mixes old and new.
                    self._lanes, self._group = lanes, group
                self._set_failure(None)
                wait = _FIRST_WAIT
                await asyncio.sleep(_WATCH_INTERVAL)
            except BrokerError as error:
                self._set_failure(error)
                await asyncio.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT)
            except Stopping:
                return

    def _set_failure(self, failure: BrokerError | None) -> None:
        if str(failure) != str(self._failure):
            if failure is not None:
                log.warning("cannot read the state of the group", subscription=self.settings.name, error=failure)
            else:
                log.info("resolved: the state of the group can be read again", subscription=self.settings.name)
        self._failure = failure

    def _watch_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.bug("a loop of the subscription failed", error, subscription=self.settings.name)
            self.broken = f"the subscription stopped working: {error!r}"


def _required(token: int) -> int:
    if not token:
        raise InvalidRequest("token must be given: Attach returns one")
    return token


def _reader_status(attached: Attached, wall_ms: int) -> ReaderStatus:
    # The broker may have kept only the token.
    age = max(0.0, (wall_ms - attached.since_ms) / 1000) if attached.since_ms else 0.0
    return ReaderStatus(name=attached.reader, token=attached.token, age=age)


def _lane_status(lane: Lane, end: LaneEnd, committed: int, *, counts: bool) -> LaneStatus:
    # Without a committed position all records of the lane are unsettled.
    lag = max(0, end.end - max(committed, end.start)) if counts else end.backlog
    return LaneStatus(
        topic=lane.topic, lane=lane.number, committed=committed, fetched=max(0, committed), end=end.end, lag=lag
    )
