"""What must hold, checked on everything that passes between the sidecar, the broker and the workers.

Derived from the promises, not from the code: the checker keeps books of its own.
"""

import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from sidecar.brokers.base import Advanced, Lost, Polled, Revoked
from sidecar.model.records import Assigned, Commit, Lane, Message, Notice, NoticeKind, Order
from sidecar.settings import Exhausted, SubscriptionSettings
from tests.simulation.answers import Answers
from tests.simulation.flow import Flow
from tests.simulation.items import Doubt, Epoch, Hand, Item, Phase
from tests.simulation.loop import EPOCH_MS
from tests.simulation.storage import Copy, LaneLog
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.source import Reading

NOTHING_IS_LOST = "1 nothing is lost"
REPLAYS = "2 a nack replays"
TRUTHFUL = "3 a settle is answered truthfully"
ORDERED = "4 order as chosen"
HELD_UP = "5 one slow record holds up nobody else"
ANY_WORKER = "6 workers are not bound to partitions"
BOUNDED = "7 memory is bounded"
REBALANCE = "8 rebalance is safe"
REMEMBERS = "9 a restart forgets little"
DRAINS = "10 drain is orderly"
ISOLATED = "11 poison is isolated"
OUTAGE = "12 an outage is not poison"


class Truth(Answers):
    """The whole checker. See its bases for deliveries and for what workers say."""

    def __init__(self, world: World, settings: SubscriptionSettings, logs: Mapping[Lane, LaneLog]) -> None:
        super().__init__(world, settings)
        self.logs = logs
        #: epochs that a seek has ended durably, and of which the sidecar is about to learn
        self._superseded: list[Epoch] = []
        self._sought: set[Lane] = set()
        #: leases with records of lanes that are gone, whose workers must be told
        self.unnotified: dict[Hand, None] = {}
        #: when workers were last told that a lease is in vain
        self.told: dict[bytes, float] = {}
        self.flow = Flow(self)
        self.reading: Callable[[Lane], Reading | None] = lambda _: None
        self.drain_began = 0.0
        self.keeps_acks_beyond = False
        self._lanes_before = 0
        self._crowded = False
        self.dead_letters = 0
        self.parks = 0
        #: for which delivery's sake each message is written aside: a write may outlive its lane's epoch
        self._asides: dict[int, tuple[Message, Item | None]] = {}

    # Lanes come and go

    def new_life(self) -> None:
        self.life += 1
        self.epochs = {}
        self.hands = {}
        self.live = {}
        self.sessions = {}
        self.draining = False
        self.paused = False
        self._superseded = []
        self.unnotified = {}
        self.success_in_life = None
        self.failing.clear()
        self.largest = [(self.world.now, 0)]
        self.flow.new_life()

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
                            self.exercised(REBALANCE)
                    world.happened("revoked", *event.lanes)
                case Lost():
                    self.exercised(REBALANCE)
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
        self.world.happened("assigned", lane, event.start, event.settled)
        if event.settled:
            self.exercised(REMEMBERS)

    def _arrived(self, lane: Lane, positions: Collection[int], frames: Collection[bytes]) -> None:
        epoch = self.epochs[lane]
        settings = self.settings
        fresh = []
        for position, frame in zip(positions, frames, strict=True):
            if position < epoch.tracked:
                continue
            epoch.tracked = position + 1
            if epoch.was_settled(position):
                continue
            copy = epoch.log.copies[position]
            # The first record is within the window however large the gap before it.
            within = not epoch.positions or (
                position < epoch.start + settings.window.span and len(epoch.positions) < settings.window.records
            )
            if copy.possibly_processed or (copy.last_delivered_by and not (epoch.sought and not within)):
                doubt = Doubt.MUST
            else:
                doubt = Doubt.MAY if within and not epoch.first else Doubt.NO
            item = epoch.items[position] = Item(copy, epoch, self.world.now, doubt)
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
        """From now on the sidecar knows that these are not its own."""
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
        for hand in self.live.values():
            self.isolation.disturb(hand)
            if any(item.epoch is epoch for item in hand.items) and self.told.get(hand.id) != self.world.now:
                self.unnotified[hand] = None

    def sought(self, lane: Lane) -> None:
        """The lane moved durably; the sidecar learns of it soon."""
        self._sought.add(lane)
        self.exercised("seek")
        epoch = self.epochs.get(lane)
        if epoch is not None:
            self._superseded.append(epoch)
        self._forget_deliveries(lane)

    def _forget_deliveries(self, lane: Lane) -> None:
        """Only what lies within one window of the new start is flagged after a seek."""
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
            # What was delivered while the broker had moved the lane already.
            self._forget_deliveries(lane)
        self.world.happened("sought", *sorted(lanes))

    def released(self, source: Any, lanes: Collection[Lane]) -> None:
        self.catch_up()
        leaving = [lane for lane in lanes if lane in self.epochs and self.epochs[lane].phase is Phase.LEAVING]
        self.flow.released(leaving)
        if self.draining:
            self.flow.drained([lane for lane in lanes if lane not in leaving], self.drain_began)
        self.lanes_gone(lanes, "released")

    def closed(self, source: Any) -> None:
        self.world.happened("closed")

    # Commits

    def commit_begins(self, source: Any, commits: Mapping[Lane, Commit]) -> dict[Lane, Epoch | None]:
        for lane, commit in commits.items():
            if lane not in self.epochs:
                self.world.broken(REBALANCE, f"a commit for {lane}, which is not this sidecar's any more: {commit}")
        self.world.happened("commit", *((lane, commit.position, commit.beyond) for lane, commit in commits.items()))
        return {lane: self.epochs.get(lane) for lane in commits}

    def check_commit(self, lane: Lane, commit: Commit, epoch: Any) -> None:
        """The broker takes this commit: everything it covers must be settled."""
        assert isinstance(epoch, Epoch)
        self.catch_up()
        if commit.position > epoch.tracked and not epoch.was_settled(commit.position - 1):
            self.world.broken(NOTHING_IS_LOST, f"{lane}: commit {commit.position} is past {epoch.tracked}, what it saw")
        if epoch.checked < commit.position:
            self._check_covered(epoch, epoch.checked, commit.position)
            epoch.checked = commit.position
        self.exercised(NOTHING_IS_LOST)
        low = commit.position
        for run in commit.beyond:
            if not self.keeps_acks_beyond:
                self.world.broken(REMEMBERS, f"{lane}: acks beyond the position, which this broker cannot keep")
            if run.start <= low or run.stop <= run.start:
                self.world.broken(NOTHING_IS_LOST, f"{lane}: runs touch or do not ascend: {commit}")
            low = run.stop
            if run.stop > epoch.tracked and not epoch.was_settled(run.stop - 1):
                self.world.broken(NOTHING_IS_LOST, f"{lane}: acks of what it never saw: {commit}, saw {epoch.tracked}")
            self._check_covered(epoch, run.start, run.stop)

    def _check_covered(self, epoch: Epoch, start: int, stop: int) -> None:
        log = epoch.log
        for position in log.positions[log.from_(start) : log.from_(stop)]:
            copy = log.copies[position]
            item = epoch.items.get(position)
            settled = (item is not None and (item.done or item.dropped)) or epoch.was_settled(position)
            if not settled and not copy.dead and not copy.parked:
                why = f"{item.hand}, said {item.hand.said}" if item is not None and item.hand else "never delivered"
                self.world.broken(NOTHING_IS_LOST, f"{copy} is covered by a commit, but was not settled: {why}")

    def committed(self, commits: Mapping[Lane, Commit]) -> None:
        """The sidecar gets the answer."""
        for lane, commit in commits.items():
            epoch = self.epochs.get(lane)
            if epoch is not None:
                epoch.committed = max(epoch.committed, commit.position)
                epoch.committed_at = self.world.now

    # Aside

    def origin_of_parked(self, message: Message) -> tuple[str, int, int]:
        said = _said_of_parked(message)
        return said["topic"], said["lane"], said["position"]

    def writes_aside(self, message: Message, copy: Copy, *, parked: bool) -> None:
        """The sidecar asks the broker to write a record aside: was there a reason to?"""
        self.catch_up()
        if (message.key, message.value) != (copy.key, copy.value):
            self.world.broken(NOTHING_IS_LOST, f"{copy} was changed on its way aside")
        if id(message) not in self._asides:
            too_large = not parked and _is_too_large(message)
            self._asides[id(message)] = message, self._in_this_epoch(copy) if too_large else _item_of(copy)
        item = self._aside_for(message)
        if parked:
            if self.settings.order is not Order.NONE or not self.settings.parking.enabled:
                self.world.broken(ORDERED, f"{copy} is parked, but parking is not for this order")
            if item is None or not item.waits:
                self.world.broken(REPLAYS, f"{copy} is parked without a reason to wait")
            said = _said_of_parked(message)
            known = (item.failures, item.worker_crashes)
            if item.epoch.phase is not Phase.GONE and known != (said["failures"], said["deaths"]):
                self.world.broken(REPLAYS, f"{copy} is parked as {said}, known of it is {known}")
            return
        reason = _reason(message)
        if reason.startswith("REJECTED"):
            if item is None or not item.rejected:
                self.world.broken(ISOLATED, f"{copy} is dead-lettered as rejected, but nobody rejected it")
        elif _is_too_large(message):
            if not any(0 < largest < copy.size for _, largest in self.largest):
                self.world.broken(
                    ISOLATED, f"{copy} of {copy.size} bytes is dead-lettered as too large: {self.largest}"
                )
        else:
            self._check_given_up(copy, item, reason)

    def _in_this_epoch(self, copy: Copy) -> Item | None:
        """As it is when the sidecar gives it up, which need not have delivered it in this epoch."""
        item = _item_of(copy)
        lane, position = (copy.lane, copy.position) if item is None else (item.epoch.lane, item.position)
        current = self.epochs.get(lane)
        return item if current is None else current.items.get(position, item)

    def _aside_for(self, message: Message) -> Item | None:
        return self._asides[id(message)][1]

    def _check_given_up(self, copy: Copy, item: Item | None, reason: str) -> None:
        if item is None or not (item.can_end or item.must_end):
            failures = item.failures if item else 0
            if item is not None and (failures >= self.settings.retry.attempts or item.worker_crashes >= 3):
                self.world.broken(
                    OUTAGE, f"{copy} is given up, and nothing has succeeded since it first failed: {reason}"
                )
            self.world.broken(ISOLATED, f"{copy} is dead-lettered after {failures} failures: {reason}")
        if self.settings.retry.exhausted is not Exhausted.DEAD_LETTER:
            self.world.broken(
                ISOLATED, f"{copy} is dead-lettered, but the settings say {self.settings.retry.exhausted}"
            )
        if reason != item.reason:
            self.world.broken(ISOLATED, f"{copy} is dead-lettered for {reason!r}, not for {item.reason!r}")
        self.exercised(ISOLATED)

    def parked(self, origin: Copy, copy: Copy, message: Message, *, redriven: bool) -> None:
        """The broker has it in the retry topic."""
        self.parks += 1
        # The record may also come, or have come, from where it was parked, or from another copy of it.
        copy.possibly_processed = True
        if redriven:
            self.exercised("redrive")
            copy.kind = origin.kind
            return
        self.exercised("park")
        item = self._aside_for(message)
        assert item is not None
        # As it was when the sidecar decided to: the lane may have moved meanwhile.
        said = _said_of_parked(message)
        copy.failures, copy.worker_crashes = said["failures"], said["deaths"]
        copy.counted_failures = said["strikes"]
        copy.first_failed = None if said["failed_ms"] is None else (said["failed_ms"] - EPOCH_MS) / 1000
        copy.not_before, copy.ready = item.not_before, item.ready
        origin.parked = True
        if item.waits:
            self._settled(item)

    def dead_lettered(self, origin: Copy, message: Message) -> None:
        """The broker has it in the dead-letter topic."""
        self.dead_letters += 1
        self.exercised("dead letter")
        origin.dead = True
        item = self._aside_for(message)
        # In the epoch in which it was given up: if it has come again since, it is delivered again.
        if item is not None and (item.rejected or item.can_end or item.must_end or _is_too_large(message)):
            self._settled(item)

    # The end

    def all_over(self) -> bool:
        """Every record that was ever produced is acked, dead-lettered, dropped or skipped by choice."""
        return not self.left()

    def left(self) -> list[Copy]:
        return [copy for log in self.logs.values() if log.pinned for copy in log.copies.values() if self._owed(copy)]

    def why_not_done(self) -> str:
        left = self.left()
        logs = [f"{log}: {log.committed} of {log.end}" for log in self.logs.values() if log.committed != log.end]
        return f"{len(left)} records, such as {left[:5]}; committed are {logs}"

    def _owed(self, copy: Copy) -> bool:
        return not copy.over and not (isinstance(copy.item, Item) and copy.item.dropped)

    def all_done(self) -> bool:
        """And all of it is committed."""
        for log in self.logs.values():
            if log.owner is not None and log.pinned and log.committed != log.end:
                return False
            if log.owner == "other":
                return False
        return self.all_over()

    def notified(self, session: Any, notice: Notice) -> None:
        if notice.kind is NoticeKind.REVOKED:
            for lease in notice.leases:
                self.unnotified.pop(self.hands[lease], None)
                self.told[lease] = self.world.now
        self.world.happened("notice", self.world.names.get(session), notice.kind.name, *notice.leases)

    def _check_memory(self) -> None:
        limits = self.settings.memory
        records = sum(epoch.held_records for epoch in self.epochs.values())
        size = sum(epoch.held_bytes for epoch in self.epochs.values())
        if records >= 0.8 * limits.records or size >= 0.8 * limits.bytes:
            self.exercised(BOUNDED)
        # Each lane may go over its part by a record, and a poll may have been under way. Lanes that come when others
        # hold what will be theirs get their part all the same.
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
                BOUNDED, f"{records} of {limits.records} records, {size} of {limits.bytes} bytes are held"
            )


def _reason(message: Message) -> str:
    return next((header.value or b"").decode() for header in message.headers if header.name == "offramp-reason")


def _is_too_large(message: Message) -> bool:
    return _reason(message).startswith("TOO_LARGE")


def _item_of(copy: Copy) -> Item | None:
    return copy.item if isinstance(copy.item, Item) else None


def _said_of_parked(message: Message) -> dict[str, Any]:
    said = json.loads(message.headers[-1].value or b"")
    assert isinstance(said, dict)
    return said
