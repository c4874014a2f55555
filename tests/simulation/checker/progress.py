"""Checks progress: whoever can be served is served, at once and fairly, and what is settled is committed."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from sidecar.model.records import Lane, Order
from tests.simulation.checker.promises import Promise
from tests.simulation.checker.state import Epoch, Grant, Phase, TrackedRecord

if TYPE_CHECKING:
    from tests.simulation.broker.source import LaneReader
    from tests.simulation.checker.checker import Checker

#: seconds within which what can be done is done
_AT_ONCE = 0.02
#: seconds for which a lane with nothing in memory may stay paused
_STARVED = 3.0
#: seconds after which trouble with commits or polls is over: the longest backoff, and a commit that hangs
_OVER = 15.0
#: bytes: every worker takes records smaller than this
_SMALL = 2_000


class Progress:
    def __init__(self, checker: "Checker") -> None:
        self.checker = checker
        self.world = checker.world
        self.settings = checker.settings
        self._unlimited = False
        #: since when each session could take a batch
        self.ready_sessions: dict[Any, float] = {}
        self._passed: dict[Any, int] = {}
        self._lane_passed: dict[Epoch, int] = {}
        #: when a commit last failed, hung, was slow or met a lane that was gone
        self.commit_trouble = float("-inf")
        #: when a write to a side topic was last slow or failed: the sidecar may not know that it was written
        self.side_topic_trouble = float("-inf")
        #: when a poll last failed: the next one may wait for a backoff
        self.poll_trouble = float("-inf")
        self._last_probe: Grant | None = None

    def overloaded(self) -> None:
        """From now on the number of batches in flight may be limited."""
        self._unlimited = False

    def new_life(self) -> None:
        budget = self.settings.budget
        self._unlimited = not (budget.concurrency or budget.adaptive or budget.rate)
        self.ready_sessions = {}
        self._passed = {}
        self._lane_passed = {}
        self._last_probe = None
        self.commit_trouble = self.world.now

    # Workers

    def session_changed(self, session: Any) -> None:
        """Its credit changed, or it got or gave back a batch."""
        held = self.checker.sessions.get(session)
        easy = session.credit.bytes == 0 and session.max_message_bytes >= 1 << 20
        room = held is not None and len(held) < session.credit.batches and session not in self.checker.stopped
        # A worker with an isolated record gets nothing else.
        alone = held is not None and any(item.alone for grant in held.values() for item in grant.items)
        if room and easy and not alone:
            self.ready_sessions.setdefault(session, self.world.now)
        else:
            self.ready_sessions.pop(session, None)
            self._passed.pop(session, None)

    def delivered(self, session: Any, grant: Grant, *, down: bool) -> None:
        self._passed.pop(session, None)
        self.ready_sessions.pop(session, None)
        now = self.world.now
        if down:
            self._check_probe(grant)
            self._lane_passed.clear()
            self._passed.clear()
        elif self._nobody_is_kept_alone():
            self._check_workers(now)
            self._check_lanes(grant, now)
        if any(
            other is not grant and now - other.granted > 1.0 and other.items[0].epoch is grant.items[0].epoch
            for other in self.checker.live.values()
        ):
            self.world.exercised(Promise.SLOW_RECORD)

    def _check_workers(self, now: float) -> None:
        """The worker that waits longest is served next, so no one is passed over for long."""
        most = len(self.checker.sessions) + 3
        for session, since in self.ready_sessions.items():
            if since < now - _AT_ONCE:
                passed = self._passed[session] = self._passed.get(session, 0) + 1
                if passed > most:
                    name = self.world.names[session]
                    self.world.broken(
                        Promise.ANY_WORKER, f"{name} waits since {since:.3f}, {passed} batches went to others"
                    )

    def _check_lanes(self, grant: Grant, now: float) -> None:
        """A backlogged lane does not starve a trickling one."""
        most = 2 * len(self.checker.epochs) + 8
        taken = {id(item.epoch) for item in grant.items}
        for epoch in self.checker.epochs.values():
            item = self._next(epoch)
            if item is None or id(epoch) in taken or item.arrived + self.settings.batch.linger > now - _AT_ONCE:
                self._lane_passed.pop(epoch, None)
                continue
            passed = self._lane_passed[epoch] = self._lane_passed.get(epoch, 0) + 1
            if passed > most:
                self.world.broken(
                    Promise.SLOW_RECORD, f"{item} could go since {item.arrived:.3f}, {passed} batches went before it"
                )

    def _next(self, epoch: Epoch) -> TrackedRecord | None:
        """The first record of a lane, if it can go and was never delivered."""
        position = epoch.first_past_committed()
        item = epoch.items.get(position) if position is not None else None
        if item is None or item.grant is not None or item.done or epoch.phase is not Phase.ACTIVE:
            return None
        if not _within_reach(epoch, item.position):
            return None
        return item if item.copy.origin is None and item.copy.size < _SMALL else None

    def _nobody_is_kept_alone(self) -> bool:
        """No record waits for a worker that holds nothing else; such a record may keep others waiting."""
        return not any(
            item.alone and not item.done for epoch in self.checker.epochs.values() for item in epoch.suspects
        )

    def _check_probe(self, grant: Grant) -> None:
        """Probes come from different lanes, if there are any."""
        before, self._last_probe = self._last_probe, grant
        success = self.checker.last_success
        if before is None or (success is not None and success >= before.granted):
            return
        lane = grant.items[0].epoch
        if before.items[0].epoch is not lane:
            return
        for epoch in self.checker.epochs.values():
            item = self._next(epoch)
            if epoch is not lane and item is not None and item.arrived < before.granted:
                self.world.broken(Promise.OUTAGE, f"{grant} probes {lane.lane} again, and {item} was never tried")

    # Periodic checks

    def check(self, *, down: bool) -> None:
        """Nothing that can be done is left undone. Call between events, when their consequences are over."""
        checker = self.checker
        now = self.world.now
        if down:
            checker.resumed_at = now
            self._check_probed(now)
        held_aside = self.settings.order is not Order.NONE and now - self.side_topic_trouble < _OVER
        if self._unlimited and not (down or checker.paused or checker.draining or held_aside):
            waiting = [session for session, since in self.ready_sessions.items() if since < now - _AT_ONCE]
            if waiting and self._nobody_is_kept_alone():
                self._check_nothing_waits(waiting[0], now)
        if not checker.draining and now - self.poll_trouble > _OVER:
            self._check_fetched(now)
        if now - self.commit_trouble > _OVER:
            for epoch in checker.epochs.values():
                self._check_committed(
                    epoch, now - self.settings.commit_every - 0.5, "commits are continuous", Promise.RESTART
                )
        for grant in checker.unnotified:
            self.world.broken(
                Promise.REBALANCE, f"{grant} holds records of a lane that is gone, and its worker was not told"
            )

    def _check_probed(self, now: float) -> None:
        """A record that was never tried is a better probe than one that failed before: it does not wait for its turn
        if the latest probe was one of these."""
        checker, last = self.checker, self._last_probe
        if last is None or last.ended is None or last.untried or not self._unlimited:
            return
        if checker.paused or checker.draining or any(grant.probe for grant in checker.live.values()):
            return
        since = max((min(self.ready_sessions.values(), default=now), last.ended))
        for epoch in checker.epochs.values():
            item = self._next(epoch)
            if item is not None and max(item.arrived, epoch.committed_at, since) < now - _AT_ONCE:
                self.world.broken(Promise.OUTAGE, f"{item} was never tried, and waits since {item.arrived:.3f}")

    def _check_nothing_waits(self, session: Any, now: float) -> None:
        for epoch in self.checker.epochs.values():
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

    def _waits_in_vain(self, session: Any, item: TrackedRecord) -> None:
        held = [
            grant for grant in self.checker.live.values() if any(other.epoch is item.epoch for other in grant.items)
        ]
        young = held and all(self.world.now - grant.granted < 1.0 for grant in held)
        text = f"{item} could go since {item.ready:.3f}, and {self.world.names[session]} waits for work"
        self.world.broken(Promise.ANY_WORKER if young else Promise.SLOW_RECORD, text)

    def _could_go(self, item: TrackedRecord, now: float) -> bool:
        if item.grant is None:
            since = max(item.arrived + self.settings.batch.linger, item.ready)
        elif item.grant.live or item.waits or item.can_end or item.must_end or item.rejected:
            return False
        else:
            since = item.ready
        # Until then a full window, an earlier record of its key, a pause or an outage may have prevented it.
        since = max(since, item.epoch.committed_at, item.epoch.emptied, self.checker.resumed_at)
        return since < now - _AT_ONCE and item.copy.size < _SMALL and self._surely_in_window(item)

    def _surely_in_window(self, item: TrackedRecord) -> bool:
        """Whether it is in the window even if the broker sends what an earlier life settled, which then counts."""
        epoch, log, window = item.epoch, item.epoch.log, self.settings.window
        if not _within_reach(epoch, item.position):
            return False
        if item.position == epoch.first_past_committed():
            return True
        before = log.positions[log.from_(epoch.committed) : log.from_(item.position) + 1]
        size = sum(len(log.copies[position].frame) for position in before)
        return len(before) <= window.records and size <= window.bytes and item.position < epoch.committed + window.span

    def _in_order(self, item: TrackedRecord, *, earlier: bool) -> bool:
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
        """A lane with nothing in memory is fetched, however much others hold."""
        for epoch in self.checker.epochs.values():
            reader = self.checker.reader(epoch.lane)
            if reader is None or not reader.paused or epoch.held_records or epoch.committed < epoch.tracked:
                continue
            if reader.log.end > reader.next and self._calm_since(reader, epoch) < now - _STARVED:
                self.world.broken(
                    Promise.MEMORY, f"{epoch.lane} is paused since {reader.paused_at:.3f} with nothing in memory"
                )

    def _calm_since(self, reader: "LaneReader", epoch: Epoch) -> float:
        return max(reader.paused_at, epoch.emptied, epoch.committed_at)

    def _check_committed(self, epoch: Epoch, before: float, what: str, promise: str) -> None:
        """What was settled before a time is committed, as far as the broker can store it."""
        log = epoch.log
        keeps = self.checker.keeps_acks_beyond
        since = 0.0
        for position in epoch.positions:
            item = epoch.items[position]
            if not item.acked:
                # The sidecar may not know of a write to a side topic: the answer may have been lost.
                if not keeps:
                    return
                continue
            # Without acks beyond the position, a record is committed only once all before it are settled.
            since = item.done_at if keeps else max(since, item.done_at)
            if since < before and not log.has_settled(position):
                self.world.broken(
                    promise, f"{item} was settled at {item.done_at:.3f}, and {epoch.lane} is at {log.committed}: {what}"
                )

    def released(self, lanes: Collection[Lane]) -> None:
        """Revoked lanes go: what is settled must be committed before."""
        for lane in lanes:
            epoch = self.checker.epochs.get(lane)
            if epoch is not None and self.commit_trouble < (epoch.left_at or 0.0):
                self.world.exercised("a lane is released with all it has committed")
                self._check_committed(epoch, self.world.now, "it is released", Promise.REBALANCE)

    def drained(self, lanes: Collection[Lane], began: float) -> None:
        """The sidecar drains: what is settled must be committed before it stops."""
        for lane in lanes:
            epoch = self.checker.epochs.get(lane)
            if epoch is not None and self.commit_trouble < began:
                self._check_committed(epoch, self.world.now, "the sidecar has drained", Promise.DRAIN)


def _within_reach(epoch: Epoch, position: int) -> bool:
    """Otherwise it waits for a commit."""
    return epoch.reach is None or position < epoch.reach
