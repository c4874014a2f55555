"""The simulated source of one life of the sidecar: its membership in the group."""

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from sidecar.brokers.base import (
    Advanced,
    AtPosition,
    LaneEnd,
    LaneEvent,
    Lost,
    Polled,
    Revoked,
    SeekTarget,
    SeekTo,
    Source,
    SourceSpec,
)
from sidecar.model.errors import LaneGone, Unavailable
from sidecar.model.records import Assigned, Chunk, Commit, Lane
from tests.simulation.broker.storage import LaneLog, StoredRecord

if TYPE_CHECKING:
    from tests.simulation.broker.simulated_broker import SimulatedBroker


class Lanes(frozenset[Lane]):
    """A set of lanes that iterates in sorted order, so that a seed reproduces its history with any hash seed."""

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(sorted(super().__iter__()))


class LaneReader:
    """How far one life has read a lane that it has."""

    def __init__(self, log: LaneLog) -> None:
        self.log = log
        self.start = self.next = log.committed
        self.paused = False
        self.paused_at = 0.0
        #: its Assigned was polled
        self.told = False
        #: revoked: nothing more is sent; taken away when it is released or the grace period is over
        self.leaving = False


class SimulatedSource(Source):
    """After `crash` its calls never return and change nothing."""

    def __init__(self, broker: "SimulatedBroker", spec: SourceSpec) -> None:
        self._broker = broker
        self._world = broker.world
        self._truth = broker.checker
        self._faults = broker.faults
        self._spec = spec
        self.dead = False
        self.opened = False
        self.readers: dict[Lane, LaneReader] = {}
        self._events: list[LaneEvent] = []
        self._waiter: asyncio.Future[None] | None = None
        self._turn = 0
        #: paused lanes of which the next poll may still return records
        self._leaks: set[Lane] = set()

    # Events from outside

    def crash(self) -> None:
        self.dead = True
        for reader in self.readers.values():
            if reader.log.owner is self:
                reader.log.owner = None

    def look(self) -> None:
        """Wake a poll that waits: there may be something to return."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def logs(self) -> list[LaneLog]:
        topics = (*self._spec.topics, *self._spec.own_topics)
        return [log for topic in topics for log in self._broker.storage.topics[topic]]

    def assign(self, log: LaneLog) -> None:
        log.owner = self
        first = self._broker.pin(log, self._spec.start)
        self._begin(log, first=first)

    def _begin(self, log: LaneLog, *, first: bool) -> None:
        before = self.readers.get(log.lane)
        self.readers[log.lane] = LaneReader(log)
        if before is not None:
            # A seek moves a lane but does not resume it.
            self.readers[log.lane].paused = before.paused
            self.readers[log.lane].paused_at = self._world.now
        self._events = [event for event in self._events if getattr(event, "lane", None) != log.lane]
        self._events.append(Assigned(log.lane, log.committed, log.beyond, first, reach=log.reach))
        self.look()

    def revoke(self, lanes: Collection[Lane], grace: float) -> None:
        mine = [lane for lane in lanes if lane in self.readers and not self.readers[lane].leaving]
        for lane in mine:
            self.readers[lane].leaving = True
        told = [lane for lane in mine if self.readers[lane].told]
        for lane in mine:
            if lane not in told:
                self._take_away(lane)
        if told:
            self._events.append(Revoked(Lanes(told), grace))
            self._world.loop.call_later(grace * self._world.rng.uniform(1.0, 2.5) + 0.3, self._grace_is_over, told)
        self.look()

    def lose(self, lanes: Collection[Lane]) -> None:
        mine = [lane for lane in lanes if lane in self.readers]
        told = [lane for lane in mine if self.readers[lane].told]
        for lane in mine:
            self._take_away(lane)
        if told:
            self._events.append(Lost(Lanes(told)))
        self.look()

    def _take_away(self, lane: Lane) -> None:
        reader = self.readers.pop(lane)
        reader.log.owner = "other"
        self._events = [event for event in self._events if getattr(event, "lane", None) != lane]

    def _grace_is_over(self, lanes: Collection[Lane]) -> None:
        late = [lane for lane in lanes if lane in self.readers and self.readers[lane].leaving]
        if late and not self.dead:
            self._world.exercised("grace is over before the release")
            self.lose(late)

    # The contract

    async def open(self) -> None:
        await self._pause_a_moment()
        if self._faults.occurs("open fails"):
            raise Unavailable("the broker does not answer")
        self.opened = True
        for log in self.logs():
            if log.owner is None:
                self.assign(log)

    async def poll(self, max_records: int, max_bytes: int, timeout: float) -> Polled:
        rng = self._world.rng
        await self._block_if_dead()
        if self._faults.occurs("poll fails"):
            self._truth.progress.poll_trouble = self._world.now
            raise Unavailable("the broker does not answer")
        if self._faults.occurs("poll is slow"):
            await asyncio.sleep(rng.uniform(0.0, timeout))
        polled = self._collect(max_records, max_bytes)
        if polled is None:
            self._waiter = self._world.loop.create_future()
            timer = self._world.loop.call_later(timeout, self.look)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
            await self._block_if_dead()
            polled = self._collect(max_records, max_bytes)
        if polled is None:
            return Polled()
        self._truth.polled(self, polled)
        return polled

    def _collect(self, max_records: int, max_bytes: int) -> Polled | None:
        rng = self._world.rng
        events, self._events = self._events, []
        for event in events:
            if isinstance(event, Assigned):
                self.readers[event.lane].told = True
        chunks: list[Chunk] = []
        readers = [reader for reader in self.readers.values() if reader.told and not reader.leaving]
        if readers and not (events and rng.random() < 0.3):
            self._turn += 1
            turn = self._turn % len(readers)
            share = max(1, max_records // len(readers)) if rng.random() < 0.7 else max_records
            for reader in readers[turn:] + readers[:turn]:
                if max_records < 1 or (chunks and max_bytes < 1):
                    break
                if reader.paused and reader.log.lane not in self._leaks:
                    continue
                chunk = self._read(reader, min(share, max_records), max_bytes, events, force=not chunks)
                if chunk is not None:
                    chunks.append(chunk)
                    max_records -= len(chunk.positions)
                    max_bytes -= chunk.ends[-1]
            self._leaks.clear()
        if chunks and rng.random() < 0.05:
            self._world.exercised("events come before the records of the same poll")
        return Polled(chunks, events) if chunks or events else None

    def _read(
        self, reader: LaneReader, records: int, size: int, events: list[LaneEvent], *, force: bool
    ) -> Chunk | None:
        log, rng = reader.log, self._world.rng
        if reader.next > reader.start and self._faults.occurs("poll repeats records"):
            reader.next = max(reader.start, reader.next - rng.randrange(1, 6))
        at = log.from_(reader.next)
        upto = log.positions[at] if at < len(log.positions) else log.end
        if upto > reader.next and (at == len(log.positions) or rng.random() < 0.3):
            # A gap. Events come first, so it may not pass records of the same poll.
            events.append(Advanced(log.lane, upto))
            self._world.exercised("a gap is told")
            reader.next = upto
        copies: list[StoredRecord] = []
        used = 0
        skips = self._broker.skips_settled
        most = min(records, rng.choice((1, 5, 1000, 1000)))
        for position in log.positions[at:]:
            if skips and log.has_settled(position):
                reader.next = position + 1
                continue
            copy = log.copies[position]
            used += len(copy.frame)
            if len(copies) == most or (used > size and (copies or not force)):
                break
            copies.append(copy)
            reader.next = position + 1
        if not copies:
            return None
        return Chunk(log.lane, [copy.position for copy in copies], [copy.frame for copy in copies])

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        await self._block_if_dead()
        world, faults = self._world, self._faults
        epochs = self._truth.commit_begins(self, commits)
        # A lane that was assigned again, and whose event was not polled yet, is in another epoch.
        readers = {lane: reader for lane in commits if (reader := self.readers.get(lane)) and reader.told}
        applied = False
        try:
            if faults.occurs("commit hangs"):
                self._truth.progress.commit_trouble = world.now + 1000.0
                await asyncio.sleep(1000.0)
            elif faults.occurs("commit is slow"):
                delay = world.rng.uniform(0.05, 2.0)
                self._truth.progress.commit_trouble = world.now + delay
                await asyncio.sleep(delay)
            elif world.rng.random() < 0.5:
                await asyncio.sleep(world.rng.uniform(0.0, 0.02))
            if faults.occurs("commit fails"):
                self._truth.progress.commit_trouble = world.now
                raise Unavailable("the commit failed")
            applied = True
            gone = self._apply(commits, readers, epochs)
        except asyncio.CancelledError:
            # Nobody waits for the answer any more; the broker may have applied the commit all the same.
            self._truth.progress.commit_trouble = world.now
            if not applied and faults.on and world.rng.random() < 0.5:
                world.exercised("a commit is applied that nobody waits for")
                self._apply(commits, readers, epochs)
            raise
        if faults.occurs("commit fails after it was applied"):
            self._truth.progress.commit_trouble = world.now
            raise Unavailable("no answer to the commit")
        self._truth.committed({lane: commit for lane, commit in commits.items() if lane not in gone})
        if gone:
            world.exercised("a commit meets a lane that is gone")
            self._truth.progress.commit_trouble = world.now
            self._truth.lanes_gone([lane for lane in gone if self._truth.epochs.get(lane) is epochs[lane]], "commit")
            raise LaneGone(gone)

    def _apply(
        self, commits: Mapping[Lane, Commit], readers: Mapping[Lane, LaneReader], epochs: Mapping[Lane, object]
    ) -> list[Lane]:
        gone = []
        for lane, commit in commits.items():
            reader = readers.get(lane)
            if reader is None or self.readers.get(lane) is not reader:
                gone.append(lane)
                continue
            if self.dead and reader.log.owner is not None:
                gone.append(lane)
                continue
            self._truth.check_commit(lane, commit, epochs[lane])
            reader.log.commit(commit)
            self._world.happened("committed", lane, commit.position, commit.beyond, commit.reach)
        return gone

    async def release(self, lanes: Collection[Lane]) -> None:
        if self.dead:
            return
        self._truth.released(self, lanes)
        for lane in lanes:
            reader = self.readers.get(lane)
            if reader is not None and reader.leaving:
                del self.readers[lane]
                reader.log.owner = "other"

    async def pause(self, lanes: Collection[Lane]) -> None:
        await self._block_if_dead()
        if self._faults.occurs("pause is slow"):
            await asyncio.sleep(self._world.rng.uniform(0.0, 0.5))
        for lane in sorted(lanes):
            if lane in self.readers:
                self.readers[lane].paused = True
                self.readers[lane].paused_at = self._world.now
                if self._faults.occurs("poll leaks a paused lane"):
                    self._leaks.add(lane)

    async def resume(self, lanes: Collection[Lane]) -> None:
        await self._block_if_dead()
        if self._faults.occurs("pause is slow"):
            await asyncio.sleep(self._world.rng.uniform(0.0, 0.5))
        for lane in lanes:
            if lane in self.readers:
                self.readers[lane].paused = False
        self.look()

    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        await self._block_if_dead()
        await self._pause_a_moment()
        if self._faults.occurs("seek fails"):
            raise Unavailable("the seek failed")
        missing = [lane for lane in lanes if lane not in self.readers or self.readers[lane].leaving]
        positions = {}
        for lane, target in lanes.items():
            if lane in missing:
                continue
            log = self.readers[lane].log
            if isinstance(target, AtPosition):
                position = min(max(target.position, log.start), log.end)
            elif target is SeekTo.START:
                position = log.start
            else:
                position = log.end
            positions[lane] = position
            for copy in log.copies.values():
                if copy.position < position and not copy.over:
                    copy.skipped = True
            log.committed, log.beyond, log.reach = position, (), None
            self._begin(log, first=False)
            self._truth.sought(lane)
        if self._world.rng.random() < 0.5:
            # The new epoch may begin before the answer arrives.
            await self._pause_a_moment()
        self._truth.lanes_gone_before_seek_returns(positions)
        if missing:
            raise LaneGone(missing)
        return positions

    async def ends(self) -> Mapping[Lane, LaneEnd]:
        return {lane: LaneEnd(reader.log.start, reader.log.end) for lane, reader in self.readers.items()}

    async def close(self) -> None:
        if self.dead:
            return
        self._truth.closed(self)
        self.crash()

    async def _block_if_dead(self) -> None:
        if self.dead:
            await asyncio.get_running_loop().create_future()

    async def _pause_a_moment(self) -> None:
        if self._world.rng.random() < 0.5:
            await asyncio.sleep(self._world.rng.uniform(0.0, 0.05))
