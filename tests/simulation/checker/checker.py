"""The whole checker: lanes, commits and memory, on top of its base classes.

It checks everything that passes between the sidecar, the broker and the workers. It is derived from the promises, not
from the code, and tracks its own state.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from sidecar.brokers.base import Advanced, Lost, Polled, Revoked
from sidecar.model.records import Assigned, Commit, Lane, Notice, NoticeKind, Order
from sidecar.settings import SubscriptionSettings
from tests.simulation.broker.storage import LaneLog, StoredRecord
from tests.simulation.checker.progress import Progress
from tests.simulation.checker.promises import Promise
from tests.simulation.checker.side_topics import SideTopicChecks
from tests.simulation.checker.state import Epoch, Flag, Grant, Phase, TrackedRecord
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.broker.source import LaneReader


class Checker(SideTopicChecks):
    """All checks. The base classes check deliveries, settlements and side topics."""

    def __init__(self, world: World, settings: SubscriptionSettings, logs: Mapping[Lane, LaneLog]) -> None:
        super().__init__(world, settings)
        self.logs = logs
        #: epochs that a seek has ended durably; the sidecar does not know yet
        self._superseded: list[Epoch] = []
        self._sought: set[Lane] = set()
        #: grants with records of lanes that are gone, whose workers must be told
        self.unnotified: dict[Grant, None] = {}
        #: when workers were told that a lease is revoked
        self.revoked_at: dict[bytes, float] = {}
        self.progress = Progress(self)
        self.reader: Callable[[Lane], LaneReader | None] = lambda _: None
        self.drain_began = 0.0
        self.keeps_acks_beyond = False
        #: lives have had different windows
        self.windows_change = False
        self._lanes_before = 0
        self._crowded = False

    # Lanes

    def new_life(self, settings: SubscriptionSettings) -> None:
        self.windows_change = self.windows_change or settings.window != self.settings.window
        self.settings = self.progress.settings = settings
        self.life += 1
        self.epochs = {}
        self.grants = {}
        self.live = {}
        self.sessions = {}
        self.draining = False
        self.paused = False
        self._superseded = []
        self.unnotified = {}
        self.success_in_life = None
        self.failing.clear()
        self.may_be_failing.clear()
        self._down_since = None
        self._busy_since = {}
        self.largest = [(self.world.now, 0)]
        self.progress.new_life()

    def polled(self, source: Any, polled: Polled) -> None:
        world = self.world
        self.catch_up()
        for event in polled.events:
            match event:
                case Assigned():
                    self._assigned(event)
                case Revoked():
                    for lane in event.lanes:
                        epoch = self.epochs.get(lane)
                        if epoch is not None:
                            epoch.phase = Phase.LEAVING
                            epoch.left_at = world.now
                            self.exercised(Promise.REBALANCE)
                    world.happened("revoked", *event.lanes)
                case Lost():
                    self.exercised(Promise.REBALANCE)
                    self.lanes_gone(event.lanes, "lost")
                case Advanced():
                    epoch = self.epochs.get(event.lane)
                    if epoch is not None:
                        epoch.tracked = max(epoch.tracked, event.position)
                    world.happened("advanced", event.lane, event.position)
        for chunk in polled.chunks:
            self._arrived(chunk.lane, chunk.positions, chunk.frames)
        self._check_memory()

    def _assigned(self, event: Assigned) -> None:
        lane = event.lane
        before = self.epochs.pop(lane, None)
        if before is not None:
            self._end(before)
        self.epochs[lane] = Epoch(self.logs[lane], event, self.life, sought=lane in self._sought)
        self._sought.discard(lane)
        if event.reach == event.start:
            self.exercised("nothing was in hand when it stopped")
        self.world.happened("assigned", lane, event.start, event.settled, event.reach)
        if event.settled:
            self.exercised(Promise.RESTART)

    def _arrived(self, lane: Lane, positions: Collection[int], frames: Collection[bytes]) -> None:
        epoch = self.epochs[lane]
        settings, found = self.settings, epoch.found_reach
        fresh = []
        for position, frame in zip(positions, frames, strict=True):
            if position < epoch.tracked:
                continue
            epoch.tracked = position + 1
            if epoch.was_settled(position):
                continue
            copy = epoch.log.copies[position]
            # The first record is always within the window, however large the gap before it.
            within = not epoch.positions or (
                position < epoch.start + settings.window.span and len(epoch.positions) < settings.window.records
            )
            unknown = epoch.sought or (copy.beyond_any_reach and self.windows_change)
            if found is not None:
                # Stored before anything was delivered: it holds whatever the settings were.
                within = position < found
            if copy.possibly_processed or (copy.last_delivered_by and not (unknown and not within)):
                flag = Flag.MUST
            else:
                flag = Flag.MAY if within and not epoch.first else Flag.NO
            item = epoch.items[position] = TrackedRecord(copy, epoch, self.world.now, flag)
            self.unparked(item)
            if item.alone:
                epoch.suspects.append(item)
            epoch.arrived(position, len(frame))
            epoch.held_records += 1
            epoch.held_bytes += copy.size
            if copy.key is not None and settings.order is Order.KEY:
                epoch.by_key.setdefault(copy.key, []).append(item)
            fresh.append(position)
        self.world.happened("arrived", lane, *fresh)

    def lanes_gone(self, lanes: Collection[Lane], how: str) -> None:
        """From now on the sidecar knows that it no longer has these lanes."""
        self.catch_up()
        self.world.happened("gone", how, *sorted(lanes))
        for lane in lanes:
            epoch = self.epochs.pop(lane, None)
            if epoch is not None:
                self._end(epoch)

    def _end(self, epoch: Epoch) -> None:
        if epoch.phase is Phase.GONE:
            return
        epoch.phase = Phase.GONE
        for grant in self.live.values():
            self.isolation.disturb(grant)
            if any(item.epoch is epoch for item in grant.items) and self.revoked_at.get(grant.id) != self.world.now:
                self.unnotified[grant] = None

    def sought(self, lane: Lane) -> None:
        """A seek has moved the lane durably; the sidecar is told soon."""
        self._sought.add(lane)
        self.exercised("seek")
        epoch = self.epochs.get(lane)
        if epoch is not None:
            self._superseded.append(epoch)
        self._forget_deliveries(lane)

    def _forget_deliveries(self, lane: Lane) -> None:
        """After a seek, only what lies within one window of the new start must be flagged."""
        for copy in self.logs[lane].copies.values():
            copy.last_delivered_by = 0

    def lanes_gone_before_seek_returns(self, lanes: Collection[Lane]) -> None:
        self.catch_up()
        superseded, self._superseded = self._superseded, []
        for epoch in superseded:
            if self.epochs.get(epoch.lane) is epoch:
                del self.epochs[epoch.lane]
            self._end(epoch)
        for lane in lanes:
            # Including what was delivered after the broker had moved the lane.
            self._forget_deliveries(lane)
        self.world.happened("sought", *sorted(lanes))

    def released(self, source: Any, lanes: Collection[Lane]) -> None:
        self.catch_up()
        leaving = [lane for lane in lanes if lane in self.epochs and self.epochs[lane].phase is Phase.LEAVING]
        self.progress.released(leaving)
        if self.draining:
            self.progress.drained([lane for lane in lanes if lane not in leaving], self.drain_began)
        self.lanes_gone(lanes, "released")

    def closed(self, source: Any) -> None:
        self.world.happened("closed")

    # Commits

    def commit_begins(self, source: Any, commits: Mapping[Lane, Commit]) -> dict[Lane, Epoch | None]:
        for lane, commit in commits.items():
            epoch = self.epochs.get(lane)
            if epoch is None:
                self.world.broken(
                    Promise.REBALANCE, f"a commit for {lane}, which is not this sidecar's any more: {commit}"
                )
            if epoch.reach is None:
                # It may be stored at any time from now on.
                epoch.reach = commit.reach
        self.world.happened("commit", *((lane, commit.position, commit.beyond) for lane, commit in commits.items()))
        return {lane: self.epochs.get(lane) for lane in commits}

    def check_commit(self, lane: Lane, commit: Commit, epoch: Any) -> None:
        """The broker applies this commit: everything that it covers must be settled."""
        assert isinstance(epoch, Epoch)
        self.catch_up()
        if commit.position > epoch.tracked and not epoch.was_settled(commit.position - 1):
            self.world.broken(
                Promise.NOTHING_IS_LOST, f"{lane}: commit {commit.position} is past {epoch.tracked}, what it saw"
            )
        if epoch.checked < commit.position:
            self._check_covered(epoch, epoch.checked, commit.position)
            epoch.checked = commit.position
        self.exercised(Promise.NOTHING_IS_LOST)
        low = commit.position
        for run in commit.beyond:
            if not self.keeps_acks_beyond:
                self.world.broken(Promise.RESTART, f"{lane}: acks beyond the position, which this broker cannot keep")
            if run.start <= low or run.stop <= run.start:
                self.world.broken(Promise.NOTHING_IS_LOST, f"{lane}: runs touch or do not ascend: {commit}")
            low = run.stop
            if run.stop > epoch.tracked and not epoch.was_settled(run.stop - 1):
                self.world.broken(
                    Promise.NOTHING_IS_LOST, f"{lane}: acks of what it never saw: {commit}, saw {epoch.tracked}"
                )
            self._check_covered(epoch, run.start, run.stop)

    def _check_covered(self, epoch: Epoch, start: int, stop: int) -> None:
        log = epoch.log
        for position in log.positions[log.from_(start) : log.from_(stop)]:
            copy = log.copies[position]
            item = epoch.items.get(position)
            settled = (item is not None and (item.done or item.dropped)) or epoch.was_settled(position)
            if not settled and not copy.dead and not copy.parked:
                why = f"{item.grant}, said {item.grant.said}" if item is not None and item.grant else "never delivered"
                self.world.broken(Promise.NOTHING_IS_LOST, f"{copy} is covered by a commit, but was not settled: {why}")

    def committed(self, commits: Mapping[Lane, Commit]) -> None:
        """The sidecar knows that these commits are applied."""
        for lane, commit in commits.items():
            epoch = self.epochs.get(lane)
            if epoch is not None:
                epoch.committed = max(epoch.committed, commit.position)
                epoch.committed_at = self.world.now
                epoch.reach = commit.reach

    # The end

    def all_over(self) -> bool:
        """Every record is acked, dead-lettered, parked, dropped, or skipped by a seek."""
        return not self.left()

    def left(self) -> list[StoredRecord]:
        return [copy for log in self.logs.values() if log.pinned for copy in log.copies.values() if self._owed(copy)]

    def why_not_done(self) -> str:
        left = self.left()
        logs = [f"{log}: {log.committed} of {log.end}" for log in self.logs.values() if log.committed != log.end]
        return f"{len(left)} records, such as {left[:5]}; committed are {logs}"

    def _owed(self, copy: StoredRecord) -> bool:
        return not copy.over and not (isinstance(copy.item, TrackedRecord) and copy.item.dropped)

    def all_done(self) -> bool:
        """All records are over and committed."""
        for log in self.logs.values():
            if log.owner is not None and log.pinned and log.committed != log.end:
                return False
            if log.owner == "other":
                return False
        return self.all_over()

    def notified(self, session: Any, notice: Notice) -> None:
        if notice.kind is NoticeKind.REVOKED:
            for lease in notice.leases:
                self.unnotified.pop(self.grants[lease], None)
                self.revoked_at[lease] = self.world.now
        self.world.happened("notice", self.world.names.get(session), notice.kind.name, *notice.leases)

    def _check_memory(self) -> None:
        limits = self.settings.memory
        records = sum(epoch.held_records for epoch in self.epochs.values())
        size = sum(epoch.held_bytes for epoch in self.epochs.values())
        if records >= 0.8 * limits.records or size >= 0.8 * limits.bytes:
            self.exercised(Promise.MEMORY)
        # Each lane may exceed its share by a record, and a poll may have been under way. New lanes get their share even
        # while others still hold it.
        lanes = len(self.epochs)
        if lanes != self._lanes_before and records:
            self._crowded = self._crowded or lanes > self._lanes_before
            self._lanes_before = lanes
        if records < 0.4 * limits.records and size < 0.4 * limits.bytes:
            self._crowded = False
            self._lanes_before = lanes
        share = 1.5 if self._crowded else 1.0
        more = lanes + max(1, limits.records // 8)
        if records > share * limits.records + more or size > share * limits.bytes + more * self.largest_record:
            self.world.broken(
                Promise.MEMORY, f"{records} of {limits.records} records, {size} of {limits.bytes} bytes are held"
            )
