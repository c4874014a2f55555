"""Delivers batches to sessions with capacity, and sets the timer for whatever time alone will change."""

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from sidecar.core.failures.backoff import Backoff
from sidecar.core.failures.outage import OutageDetector
from sidecar.core.scheduling.budget import Budget
from sidecar.core.scheduling.selection import Capacity, Selection
from sidecar.core.state.leases import Lease
from sidecar.core.state.record_slices import redeliveries
from sidecar.core.tracker import RecordTracker
from sidecar.model.clock import Clock
from sidecar.model.records import ClosedBy, Delivery
from sidecar.observability.tracing import Tracer
from sidecar.settings import BatchSettings, SubscriptionSettings
from sidecar.subscription.events import SubscriptionEvents
from sidecar.subscription.session import Session

#: bytes that each record may add to a batch besides its frame
_RECORD_OVERHEAD = 24
#: seconds that a session may be held back until it holds no batch, for a record that must be alone with its worker
_ISOLATION_TIMEOUT = 5.0

_Selector = Callable[[Capacity, float], Selection | None]


class Deliverer:
    """Fair to sessions: of those with capacity, the one that has waited longest is served next."""

    def __init__(
        self,
        settings: SubscriptionSettings,
        tracker: RecordTracker[Session],
        clock: Clock,
        outage: OutageDetector,
        budget: Budget,
        rng: random.Random,
        events: SubscriptionEvents,
        tracer: Tracer | None,
    ) -> None:
        self._settings = settings
        self._tracker = tracker
        self._clock = clock
        self._outage = outage
        self._budget = budget
        self._events = events
        self._tracer = tracer
        #: deliver nothing: paused or draining
        self.stopped = False
        #: sessions with capacity, longest waiting first
        self._ready_sessions: dict[Session, None] = {}
        self._probes = Backoff(settings.outage.probe_first, 2.0, settings.outage.probe_max, 0.2, rng)
        self._probing: Lease[Session] | None = None
        self._probe_failures = 0
        self._next_probe = 0.0
        #: the latest probe was of a record that had been delivered before, so its failure says little
        self._probed_in_vain = False
        #: gets nothing until it holds no batch, or until `_isolation_deadline`
        self._draining_session: Session | None = None
        self._isolation_deadline = 0.0
        #: for sessions whose isolation has timed out: the next batch is a suspected record
        self._suspects_turn = True
        self._capacity_within = lru_cache(maxsize=64)(partial(_capacity_within, settings.batch))
        dispatcher = tracker.dispatcher
        self._probe_only: tuple[_Selector, ...] = (dispatcher.probe_fresh, dispatcher.probe_returned)
        self._fresh_probe_only: tuple[_Selector, ...] = (dispatcher.probe_fresh,)
        self._others_only: tuple[_Selector, ...] = (dispatcher.select,)
        self._others_first: tuple[_Selector, ...] = (dispatcher.select, dispatcher.suspect)
        self._suspects_first: tuple[_Selector, ...] = (dispatcher.suspect, dispatcher.select)
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def session_changed(self, session: Session) -> None:
        if not session.has_room():
            self._ready_sessions.pop(session, None)
        elif session not in self._ready_sessions:
            self._ready_sessions[session] = None
            self.schedule_delivery()

    def release_leases(self, leases: Sequence[Lease[Session]]) -> None:
        """Their sessions do not hold these leases any more."""
        for lease in leases:
            session = lease.holder
            if session.leases.pop(lease.id, None) is not None:
                session.unsettled_bytes -= lease.size
                if not session.leases:
                    self._session_empty(session, lease)
            if lease is self._probing:
                self._probing = None
                if self._outage.down:
                    self._probe_failures += 1
                    self._next_probe = self._clock.now() + self._probes.wait(self._probe_failures)
            if self._tracer is not None:
                self._tracer.ended(lease)
        for session in dict.fromkeys([lease.holder for lease in leases]):
            self.session_changed(session)

    def _session_empty(self, session: Session, last: Lease[Session]) -> None:
        """The session holds nothing since it does not hold this lease."""
        session.consumer.idle()
        session.isolation_timed_out = False
        if session is self._draining_session:
            # If nothing is delivered now, in an outage or a pause, a later wait has a time of its own.
            self._draining_session = None
        if session.exclusive:
            # For as long as it was exclusive other records come first.
            now = self._clock.now()
            session.exclusive, session.shared_until = False, now + (now - last.granted)

    def outage_began(self, now: float) -> None:
        """Only probes are delivered until the outage ends. The first one goes at once: it may not be one."""
        self._probing = None
        self._probed_in_vain = False
        self._probe_failures = 0
        self._next_probe = now

    def probe_now(self) -> None:
        self._next_probe = 0.0
        self.schedule_delivery()

    def schedule_delivery(self) -> None:
        """Deliver after the current callback: once, however many have asked for it."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.deliver_scheduled)

    def deliver_scheduled(self) -> None:
        """Deliver now if a delivery is scheduled, and not once more after the current callback."""
        if self._scheduled:
            self.deliver_ready()

    def deliver_ready(self) -> None:
        """Deliver batches to the sessions with capacity."""
        self._scheduled = False
        now = self._clock.now()
        if self._tracker.dispatcher.only_fresh(now) and not self._outage.down:
            self._deliver_fresh(now)
        self._deliver_any(now)
        self.set_timer(now)

    def _deliver_fresh(self, now: float) -> None:
        """The usual case: all records are fresh, and whoever has capacity may have them."""
        sessions, dispatcher = self._ready_sessions, self._tracker.dispatcher
        while sessions and self._may_deliver(now):
            session = next(iter(sessions))
            selection = dispatcher.select_fresh(self._capacity(session), now)
            if dispatcher.too_large_fresh:
                self._events.records_too_large(self._tracker.hold_too_large())
            if selection is None:
                return
            del sessions[session]
            self._deliver(session, selection, now)
            if session.has_room():
                sessions[session] = None

    def _deliver_any(self, now: float) -> None:
        dispatcher = self._tracker.dispatcher
        passed_over: list[Session] = []
        if self._draining_session is not None and not dispatcher.has_suspect(now):
            # The record was delivered or is gone. The next one gets a session and a time to wait of its own.
            self._draining_session = None
        while self._ready_sessions and self._may_deliver(now) and not dispatcher.idle(now):
            session = next(iter(self._ready_sessions))
            del self._ready_sessions[session]
            if self._is_held_back(session, now):
                passed_over.append(session)
                continue
            selection, too_large = self._select(session, now)
            if selection is not None:
                self._deliver(session, selection, now)
                if session.has_room():
                    self._ready_sessions[session] = None
                continue
            passed_over.append(session)
            if not too_large and not dispatcher.has_suspect(now):
                break
            # Nothing for this session; another one may take larger records, or hold no batch.
        if passed_over:
            self._ready_sessions = {**dict.fromkeys(passed_over), **self._ready_sessions}

    def set_timer(self, now: float) -> None:
        """Report `timer_fired` when time alone has changed something. It may come too early, or a moment late."""
        times = [self._tracker.leases.next_deadline()]
        if self._ready_sessions and not self.stopped:
            dispatcher = self._tracker.dispatcher
            times.append(self._budget.next_token(now))
            due = [dispatcher.next_due(), dispatcher.linger_ends(now)]
            if self._outage.down:
                due.append(self._next_probe)
            if self._draining_session is not None:
                due.append(self._isolation_deadline)
            # What is due already and was not delivered waits for something else: a session, a commit, a key.
            times += [time for time in due if time is not None and time > now]
        at = min((time for time in times if time is not None), default=None)
        if at is None:
            return
        at = max(at, now + 0.001)
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        # Its time is kept here, because uvloop's handles have none if they are due at once.
        self._timer, self._timer_at = asyncio.get_running_loop().call_at(at, self._on_timer), at

    def close(self) -> None:
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        self._timer = None
        self._events.timer_fired()

    def _may_deliver(self, now: float) -> bool:
        if self.stopped:
            return False
        if self._outage.down and now < self._next_probe and not (self._probed_in_vain and self._probing is None):
            return False
        return self._budget.allows(len(self._tracker.leases), now)

    def _is_held_back(self, session: Session, now: float) -> bool:
        """Whether the session gets nothing now, so that it can soon take a record that must be alone with its worker.

        One session at a time, and not for long: a slow worker must not keep others of its process waiting.
        """
        dispatcher = self._tracker.dispatcher
        if not session.leases or not dispatcher.has_suspect(now):
            return False
        if session.isolation_timed_out or self._outage.down or now < session.shared_until:
            return False
        if not dispatcher.has_suspect(now, session.hard_bytes):
            return False
        if self._draining_session is None or not self._draining_session.has_room():
            self._draining_session, self._isolation_deadline = session, now + _ISOLATION_TIMEOUT
        if session is self._draining_session and now >= self._isolation_deadline:
            self._draining_session, session.isolation_timed_out = None, True
        return session is self._draining_session

    def _select(self, session: Session, now: float) -> tuple[Selection | None, bool]:
        """The next batch for this session, and whether records were too large for it."""
        capacity, dispatcher = self._capacity(session), self._tracker.dispatcher
        met_too_large = False
        for select in self._selectors(session, now):
            selection = select(capacity, now)
            if dispatcher.too_large or dispatcher.too_large_fresh:
                met_too_large = True
                self._events.records_too_large(self._tracker.hold_too_large())
            if selection is None:
                continue
            if selection.exclusive:
                self._draining_session = None
                # Not alone after a timeout: then a crash proves nothing, but an ack is an ack.
                selection = selection._replace(exclusive=not session.leases)
                self._suspects_turn = False
            elif session.isolation_timed_out:
                self._suspects_turn = True
            return selection, met_too_large
        return None, met_too_large

    def _selectors(self, session: Session, now: float) -> tuple[_Selector, ...]:
        """Where to look for its next batch, in order. Suspected records and all others share a session by time, so that
        many of the former do not keep the latter waiting."""
        if self._outage.down:
            # A record that was never tried need not wait for the next probe, if there was none for the last one.
            return self._probe_only if now >= self._next_probe else self._fresh_probe_only
        if session.isolation_timed_out:
            suspects_first = self._suspects_turn
        elif not session.leases:
            suspects_first = now >= session.shared_until
        else:
            return self._others_only
        return self._suspects_first if suspects_first else self._others_first

    def _capacity(self, session: Session) -> Capacity:
        capacity = self._capacity_within(session.hard_bytes, session.batch_records)
        if session.credit.bytes:
            return capacity._replace(bytes=min(capacity.bytes, max(1, session.credit.bytes - session.unsettled_bytes)))
        return capacity

    def _deliver(self, session: Session, selection: Selection, now: float) -> None:
        slices, tracker = selection.slices, self._tracker
        longest = float(self._settings.lease.max)
        limit = min(session.lease or longest, longest)
        lease = tracker.lease(selection, session, now, limit, longest)
        session.leases[lease.id] = lease
        session.exclusive = selection.exclusive
        session.unsettled_bytes += lease.size
        self._budget.sent(lease.records)
        if self._outage.down:
            # A probe that hangs says nothing: after this time another one is delivered.
            self._probing, self._next_probe = lease, now + self._settings.outage.probe_max
            self._probed_in_vain = selection.waited
        tracker.counters.batches += 1
        tracker.counters.delivered += lease.records
        if selection.closed_by is ClosedBy.RETRY:
            tracker.counters.redelivered += lease.records
        tracker.meters.batch_records.observe(lease.records)
        tracker.meters.closed_by[selection.closed_by] += 1
        if self._tracer is not None:
            self._tracer.delivered(lease)
        first = slices[0]
        topic, topic_id = first.topic
        if len(slices) == 1:
            frames: Sequence[bytes] = first.chunk.frames[first.start : first.stop]
            lanes: tuple[int, ...] = (first.chunk.shown.number,)
        else:
            frames = [frame for slice_ in slices for frame in slice_.chunk.frames[slice_.start : slice_.stop]]
            lanes = tuple(dict.fromkeys(slice_.chunk.shown.number for slice_ in slices))
        session.consumer.deliver(
            Delivery(
                lease.id,
                topic,
                lanes,
                frames,
                lease.records,
                lease.size,
                redeliveries(slices),
                limit,
                selection.closed_by,
                topic_id,
            )
        )


def _capacity_within(batch: BatchSettings, hard_bytes: int, records: int) -> Capacity:
    """For a client that takes this many bytes, and this many records (0: as many as there may be)."""
    # At worst a batch has a redelivery and a lane for each record besides its frame.
    frames = max(hard_bytes - _RECORD_OVERHEAD * batch.records, hard_bytes * 3 // 8)
    return Capacity(min(int(batch.bytes), frames), hard_bytes, min(batch.records, records or batch.records))
