"""That things go on: whoever can be served is served, soon and fairly, and what is settled is committed."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from sidecar.model.records import Lane, Order
from tests.simulation.items import Epoch, Hand, Item, Phase

if TYPE_CHECKING:
    from tests.simulation.source import Reading
    from tests.simulation.truth import Truth

HELD_UP = "5 one slow record holds up nobody else"
ANY_WORKER = "6 workers are not bound to partitions"
BOUNDED = "7 memory is bounded"
REBALANCE = "8 rebalance is safe"
REMEMBERS = "9 a restart forgets little"
DRAINS = "10 drain is orderly"
OUTAGE = "12 an outage is not poison"
#: seconds in which what can be done now is done
_SOON = 0.02
#: seconds that a lane with nothing in memory may be left alone
_STARVED = 3.0
#: seconds after which trouble with commits or polls is forgotten: the longest backoff, and a commit that hangs
_OVER = 15.0
#: bytes of a record that every worker takes
_SMALL = 2_000


class Flow:
    def __init__(self, truth: "Truth") -> None:
        self.truth = truth
        self.world = truth.world
        self.settings = truth.settings
        self._unlimited = False
        #: since when each session could take a batch, and how many went to others meanwhile
        self.hungry: dict[Any, float] = {}
        self._passed: dict[Any, int] = {}
        self._lane_passed: dict[Epoch, int] = {}
        #: when a commit last failed, hung, was slow or met a lane that was gone
        self.commit_trouble = float("-inf")
        #: when a dead letter or a park was last slow or failed: what was written may not be known to be
        self.aside_trouble = float("-inf")
        #: when a poll last failed: the next may be a backoff away
        self.poll_trouble = float("-inf")
        self._last_probe: Hand | None = None

    def overloaded(self) -> None:
        """The number of batches in flight is limited from now on."""
        self._unlimited = False

    def new_life(self) -> None:
        budget = self.settings.budget
        self._unlimited = not (budget.concurrency or budget.adaptive or budget.rate)
        self.hungry = {}
        self._passed = {}
        self._lane_passed = {}
        self._last_probe = None
        self.commit_trouble = self.world.now

    # Workers

    def session_changed(self, session: Any) -> None:
        """Its credit changed, or it got or gave back a batch."""
        held = self.truth.sessions.get(session)
        easy = session.credit.bytes == 0 and session.max_message_bytes >= 1 << 20
        room = held is not None and len(held) < session.credit.batches and session not in self.truth.stopped
        # Who has a record that is to be alone gets nothing else.
        alone = held is not None and any(item.alone for hand in held.values() for item in hand.items)
        if room and easy and not alone:
            self.hungry.setdefault(session, self.world.now)
        else:
            self.hungry.pop(session, None)
            self._passed.pop(session, None)

    def delivered(self, session: Any, hand: Hand, *, down: bool) -> None:
        self._passed.pop(session, None)
        self.hungry.pop(session, None)
        now = self.world.now
        if down:
            self._probed(hand)
            self._lane_passed.clear()
            self._passed.clear()
        elif self._nobody_is_kept_alone():
            self._check_workers(now)
            self._check_lanes(hand, now)
        if any(
            other is not hand and now - other.granted > 1.0 and other.items[0].epoch is hand.items[0].epoch
            for other in self.truth.live.values()
        ):
            self.world.exercised(HELD_UP)

    def _check_workers(self, now: float) -> None:
        """Who has room and waits longest is served next, so nobody is passed over for long."""
        most = len(self.truth.sessions) + 3
        for session, since in self.hungry.items():
            if since < now - _SOON:
                passed = self._passed[session] = self._passed.get(session, 0) + 1
                if passed > most:
                    name = self.world.names[session]
                    self.world.broken(ANY_WORKER, f"{name} waits since {since:.3f}, {passed} batches went to others")

    def _check_lanes(self, hand: Hand, now: float) -> None:
        """A backlogged lane does not starve a trickling one."""
        most = 2 * len(self.truth.epochs) + 8
        taken = {id(item.epoch) for item in hand.items}
        for epoch in self.truth.epochs.values():
            item = self._next(epoch)
            if item is None or id(epoch) in taken or item.arrived + self.settings.batch.linger > now - _SOON:
                self._lane_passed.pop(epoch, None)
                continue
            passed = self._lane_passed[epoch] = self._lane_passed.get(epoch, 0) + 1
            if passed > most:
                self.world.broken(HELD_UP, f"{item} could go since {item.arrived:.3f}, {passed} batches went before it")

    def _next(self, epoch: Epoch) -> Item | None:
        """The record that can go before all others of a lane, if it was never delivered."""
        position = epoch.first_past_committed()
        item = epoch.items.get(position) if position is not None else None
        if item is None or item.hand is not None or item.done or epoch.phase is not Phase.ACTIVE:
            return None
        return item if item.copy.origin is None and item.copy.size < _SMALL else None

    def _nobody_is_kept_alone(self) -> bool:
        """No record waits for a worker that holds nothing else, which may keep others waiting."""
        return not any(item.alone and not item.done for epoch in self.truth.epochs.values() for item in epoch.suspects)

    def _probed(self, hand: Hand) -> None:
        """Probes come from different lanes, if there are any."""
        before, self._last_probe = self._last_probe, hand
        success = self.truth.last_success
        if before is None or (success is not None and success >= before.granted):
            return
        lane = hand.items[0].epoch
        if before.items[0].epoch is not lane:
            return
        for epoch in self.truth.epochs.values():
            item = self._next(epoch)
            if epoch is not lane and item is not None and item.arrived < before.granted:
                self.world.broken(OUTAGE, f"{hand} probes {lane.lane} again, and {item} was never tried")

    # Now and then

    def check(self, *, down: bool) -> None:
        """Nothing that can be done is left undone. Called between events, when all that follows from them is over."""
        truth = self.truth
        now = self.world.now
        if down:
            truth.resumed_at = now
        held_aside = self.settings.order is not Order.NONE and now - self.aside_trouble < _OVER
        if self._unlimited and not (down or truth.paused or truth.draining or held_aside):
            waiting = [session for session, since in self.hungry.items() if since < now - _SOON]
            if waiting and self._nobody_is_kept_alone():
                self._check_nothing_waits(waiting[0], now)
        if not truth.draining and now - self.poll_trouble > _OVER:
            self._check_fetched(now)
        if now - self.commit_trouble > _OVER:
            for epoch in truth.epochs.values():
                self._check_committed(
                    epoch, now - self.settings.commit_every - 0.5, "commits are continuous", REMEMBERS
                )
        for hand in truth.unnotified:
            self.world.broken(REBALANCE, f"{hand} holds records of a lane that is gone, and its worker was not told")

    def _check_nothing_waits(self, session: Any, now: float) -> None:
        for epoch in self.truth.epochs.values():
            if epoch.phase is not Phase.ACTIVE:
                continue
            earlier = False
            for position in epoch.positions:
                item = epoch.items[position]
                if item.done:
                    continue
                if not item.dropped and self._could_go(item, now) and self._in_order(item, earlier=earlier):
                    self._waits_in_vain(session, item)
                earlier = True

    def _waits_in_vain(self, session: Any, item: Item) -> None:
        held = [hand for hand in self.truth.live.values() if any(other.epoch is item.epoch for other in hand.items)]
        young = held and all(self.world.now - hand.granted < 1.0 for hand in held)
        text = f"{item} could go since {item.ready:.3f}, and {self.world.names[session]} waits for work"
        self.world.broken(ANY_WORKER if young else HELD_UP, text)

    def _could_go(self, item: Item, now: float) -> bool:
        if item.hand is None:
            since = max(item.arrived + self.settings.batch.linger, item.ready)
        elif item.hand.live or item.waits or item.can_end or item.must_end or item.rejected:
            return False
        else:
            since = item.ready
        # Room in the window, an earlier record of its key, a pause or an outage may have been in its way until then.
        since = max(since, item.epoch.committed_at, item.epoch.emptied, self.truth.resumed_at)
        return since < now - _SOON and item.copy.size < _SMALL and self._surely_in_window(item)

    def _surely_in_window(self, item: Item) -> bool:
        """Also if what an earlier life settled counts, which depends on what the broker still sends."""
        epoch, log, window = item.epoch, item.epoch.log, self.settings.window
        if item.position == epoch.first_past_committed():
            return True
        before = log.positions[log.from_(epoch.committed) : log.from_(item.position) + 1]
        size = sum(len(log.copies[position].frame) for position in before)
        return len(before) <= window.records and size <= window.bytes and item.position < epoch.committed + window.span

    def _in_order(self, item: Item, *, earlier: bool) -> bool:
        order = self.settings.order
        if order is Order.NONE or item.copy.origin is not None:
            return True
        if order is Order.LANE:
            return not earlier
        if item.copy.key is None:
            return True
        mine = item.epoch.by_key[item.copy.key]
        return all(other.done or other.position >= item.position for other in mine)

    def _check_fetched(self, now: float) -> None:
        """A lane of which nothing is in memory is fetched, however much others hold."""
        for epoch in self.truth.epochs.values():
            reading = self.truth.reading(epoch.lane)
            if reading is None or not reading.paused or epoch.held_records or epoch.committed < epoch.tracked:
                continue
            if reading.log.end > reading.next and self._calm_since(reading, epoch) < now - _STARVED:
                self.world.broken(
                    BOUNDED, f"{epoch.lane} is paused since {reading.paused_at:.3f} with nothing in memory"
                )

    def _calm_since(self, reading: "Reading", epoch: Epoch) -> float:
        return max(reading.paused_at, epoch.emptied, epoch.committed_at)

    def _check_committed(self, epoch: Epoch, before: float, what: str, promise: str) -> None:
        """What was settled before a time is committed, as far as the broker can carry it."""
        log = epoch.log
        keeps = self.truth.keeps_acks_beyond
        since = 0.0
        for position in epoch.positions:
            item = epoch.items[position]
            if not item.acked:
                # What was written aside may not be known to be: the answer may have been lost.
                if not keeps:
                    return
                continue
            # A broker that keeps no acks beyond its position can be told once all before it is settled.
            since = item.done_at if keeps else max(since, item.done_at)
            if since < before and not log.has_settled(position):
                self.world.broken(
                    promise, f"{item} was settled at {item.done_at:.3f}, and {epoch.lane} is at {log.committed}: {what}"
                )

    def released(self, lanes: Collection[Lane]) -> None:
        """Revoked lanes go: what was settled must be committed before."""
        for lane in lanes:
            epoch = self.truth.epochs.get(lane)
            if epoch is not None and self.commit_trouble < (epoch.left_at or 0.0):
                self.world.exercised("a lane is released with all it has committed")
                self._check_committed(epoch, self.world.now, "it is released", REBALANCE)

    def drained(self, lanes: Collection[Lane], began: float) -> None:
        """The sidecar stops in order: what was settled must be committed before."""
        for lane in lanes:
            epoch = self.truth.epochs.get(lane)
            if epoch is not None and self.commit_trouble < began:
                self._check_committed(epoch, self.world.now, "the sidecar has drained", DRAINS)
