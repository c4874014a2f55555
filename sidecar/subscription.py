"""One consumption of topics under one group: the one owner of all its state, on one event loop.

Out: broker `poll` -> lanes `track` -> ordering -> dispatcher `pick` -> leases `grant` -> session `deliver`.
Home: `settle` -> leases -> lanes `settle` -> committing -> broker. One back edge: verdicts, which re-enter by returns.

Nothing between two awaits is interrupted, so there is nothing to lock. Its loops are fetching, committing, and
writing aside; the sweep is an alarm that is set to the next moment at which time alone changes something.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from sidecar import dead_letters, parking
from sidecar.aside import Aside, AsideWriter
from sidecar.batching import Batching
from sidecar.books import Books
from sidecar.brokers.base import Advanced, Assigned, Broker, Lost, Polled, Revoked, SeekTarget, SourceSpec, Trouble
from sidecar.budget import Budget
from sidecar.clock import Clock
from sidecar.committing import Committing
from sidecar.dispatcher import Dispatcher, Pick, Room
from sidecar.errors import Stopping
from sidecar.fetching import Fetching
from sidecar.lanes import LanePhase, LaneState
from sidecar.leases import Lease, LeasePhase, Settled, forget_records
from sidecar.memory import Memory
from sidecar.model import (
    Chunk,
    ClientInfo,
    Credit,
    Delivery,
    Extended,
    Lane,
    Notice,
    NoticeKind,
    Order,
    Outcome,
    SessionEnd,
    Settlement,
    SettleResult,
    SettleStatus,
)
from sidecar.reporting import report
from sidecar.retry import Backoff, OutageGuard, RejectWatch
from sidecar.sessions import Consumer, Session
from sidecar.settings import Oversized, SubscriptionSettings
from sidecar.spans import Parcel, ParcelState, Span, count, redeliveries, size
from sidecar.stale import without_gone_lanes
from sidecar.status import SubscriptionStatus
from sidecar.verdicts import Back, Dead, Drop, Failed, Move, Verdicts

log = logging.getLogger("offramp.subscription")


class Subscription:
    """See the module. Made once for each configured subscription; `start` before anything else."""

    def __init__(
        self,
        settings: SubscriptionSettings,
        broker: Broker,
        *,
        prefix: bytes,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings
        self.broker = broker
        self.clock = clock or Clock()
        rng = rng or random.Random()
        self.books = Books(Dispatcher(Batching(settings.batch), settings.order), prefix)
        self.counters = self.books.counters
        self.meters = self.books.meters
        self.sessions: dict[Session, None] = {}
        #: sessions with room, longest waiting first
        self._hungry: dict[Session, None] = {}
        self.guard = OutageGuard(settings.outage)
        self.budget = Budget(settings.budget)
        self._verdicts = Verdicts(settings, self.guard, rng)
        self._rejects = RejectWatch(settings.outage)
        self._probes = Backoff(settings.outage.probe_first, 2.0, settings.outage.probe_max, 0.2, rng)
        self._probe_failures = 0
        self._next_probe = 0.0
        self._probing: Lease[Session] | None = None
        self._parks = settings.parking.enabled and settings.order is Order.NONE
        self._retry_lanes = settings.parking.lanes
        self._source = broker.subscribe(
            SourceSpec(
                settings.group_name,
                settings.topics,
                settings.start,
                {settings.retry_topic: settings.parking.lanes},
            )
        )
        trouble = Backoff(0.1, 2.0, 10.0, 0.2, rng)
        self.fetching = Fetching(self.books, self._source, Memory(settings.memory), trouble, self._take_in)
        self._committing = Committing(
            settings,
            self.books,
            self._source,
            trouble,
            with_beyond=broker.traits.keeps_acks_beyond,
            lost=self._lanes_are_gone,
            committed=self._lane_was_committed,
        )
        own_topics = {settings.retry_topic: settings.parking.lanes, settings.dead_letter_topic: 1}
        self._aside = AsideWriter(broker, own_topics, trouble, self._written_aside, partial(self._note, "aside"))
        self.paused_because = ""
        self.draining = False
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: set[asyncio.Task[None]] = set()
        self._settled_something = asyncio.Event()
        self._pump_is_due = False
        self._alarm: asyncio.TimerHandle | None = None

    # Life

    async def start(self) -> None:
        """Start the loops and return at once. Trouble with the broker shows in the status and is tried again."""
        loops = (self.fetching.run(), self.fetching.regulate(), self._committing.run(), self._aside.run())
        self._tasks = [asyncio.create_task(loop) for loop in loops]
        for task in self._tasks:
            task.add_done_callback(self._loop_ended)

    async def drain(self, deadline: float) -> None:
        """Stop in order, within so many seconds: fetch no more, let workers settle, commit, close the source last."""
        ends = self.clock.now() + deadline
        self.draining = True
        self.fetching.stop()
        self._notify(Notice(NoticeKind.DRAINING, detail="the sidecar is stopping"))
        await self._settled_or(ends, lambda: not len(self.books.leases) and not len(self._aside))
        for session in [*self.sessions]:
            session.end(SessionEnd.ORDERLY)
        await self._committing.commit(self.books.lanes.values())
        await self.close()

    async def close(self) -> None:
        """Stop at once. What is not committed is replayed."""
        self.draining = True
        if self._alarm:
            self._alarm.cancel()
        tasks = [*self._tasks, *self._leaving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._source.release([*self.books.lanes])
        await self._source.close()

    # Workers

    def connect(
        self, consumer: Consumer, *, client: ClientInfo, credit: Credit, max_message_bytes: int, lease: float | None
    ) -> Session:
        """A session for one app process. Raises `Stopping` while the sidecar drains."""
        if self.draining:
            raise Stopping("the sidecar is stopping; connect again in a moment")
        session = Session(self, consumer, client, max_message_bytes, lease, self.clock.now())
        self.sessions[session] = None
        if self.paused_because:
            consumer.notify(Notice(NoticeKind.PAUSED, detail=self.paused_because))
        session.grant(credit)
        return session

    def session_changed(self, session: Session) -> None:
        if not session.has_room():
            self._hungry.pop(session, None)
        elif session not in self._hungry:
            self._hungry[session] = None
            self._pump_soon()

    def session_ended(self, session: Session, how: SessionEnd) -> None:
        self.sessions.pop(session, None)
        self._hungry.pop(session, None)
        if how is SessionEnd.DETACHED:
            return
        now = self.clock.now()
        for lease in [*session.leases.values()]:
            spans = self._end(lease)
            failed = _failed(lease, spans)
            if how is SessionEnd.LOST:
                self.counters.abandoned += count(spans)
                self._apply(self._verdicts.abandoned(failed, now), lease, now, heirs=True)
            else:
                self.counters.released += count(spans)
                self._apply(self._verdicts.released(failed), lease, now, heirs=True)
        self._pump_soon()

    def written(self, leases: Iterable[bytes]) -> None:
        """The batches were written to their worker: their time starts now."""
        now = self.clock.now()
        for lease in leases:
            self.books.leases.written(lease, now)
        self._set_alarm(now)

    def extend(self, lease: bytes, lease_for: float) -> Extended:
        return self.books.leases.extend(lease, lease_for, self.settings.lease.max, self.clock.now())

    def settle(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        """Take the word of workers. Raises `InvalidRequest` before anything is applied."""
        self.books.leases.check(settlements)
        now = self.clock.now()
        return [self._settle(settlement, now) for settlement in settlements]

    # Operators

    def pause(self, reason: str) -> None:
        """Deliver nothing until `resume`."""
        self.paused_because = reason or "by an operator"
        log.warning("paused", extra={"reason": self.paused_because})
        self._notify(Notice(NoticeKind.PAUSED, detail=self.paused_because))

    def resume(self) -> None:
        """Go on after `pause`; while the handler seems down, probe at once."""
        self._rejects.reset()
        self._next_probe = 0.0
        if self.paused_because:
            self.paused_because = ""
            log.info("resumed")
            self._notify(Notice(NoticeKind.RESUMED))
        self._pump_soon()

    def lanes(self) -> list[Lane]:
        return [lane for lane, state in self.books.lanes.items() if not state.parked]

    async def seek(self, targets: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        return await self._committing.seek(targets)

    def status(self) -> SubscriptionStatus:
        return report(self, self.fetching.ends)

    # Out: from the broker to the workers

    def _take_in(self, polled: Polled) -> None:
        now = self.clock.now()
        for event in polled.events:
            match event:
                case Assigned():
                    self._lane_is_assigned(event)
                case Revoked():
                    states = [self.books.lanes[lane] for lane in event.lanes if lane in self.books.lanes]
                    task = asyncio.create_task(self._leave(states, event))
                    self._leaving.add(task)
                    task.add_done_callback(self._leaving.discard)
                case Lost():
                    self._lanes_are_gone(self.books.lanes[lane] for lane in event.lanes if lane in self.books.lanes)
                case Advanced():
                    self._lane_advanced(event)
                case Trouble():
                    self._note(event.topic, event.text)
        for chunk in polled.chunks:
            state = self.books.lanes.get(chunk.lane)
            # A chunk of a lane that is leaving, or that moved while it was on its way, is not ours to deliver.
            if state is not None and state.phase is LanePhase.ACTIVE and chunk.positions:
                self._track(state, chunk, now)
        if polled.chunks:
            self._pump_soon()

    def _track(self, state: LaneState, chunk: Chunk, now: float) -> None:
        spans = state.track(chunk, now)
        records = count(spans)
        self.counters.fetched += records
        self.books.records += records
        self.books.bytes += size(spans)
        for span in spans:
            if state.parked:
                self._unpark(state, span, now)
            else:
                state.ordering.add(span)
        self.books.dispatcher.wake(state)

    def _unpark(self, state: LaneState, span: Span, now: float) -> None:
        """Records of the retry topic wait in memory until they are due."""
        wall = self.clock.wall_ms()
        company: list[Span] = []
        for single in span.singles():
            back = parking.unpark(single.chunk, single.start, now, doubtful=span.history.doubtful)
            self.counters.unparked += 1
            resized = back.chunk.ends[-1] - single.size
            state.unsettled_bytes += resized
            self.books.bytes += resized
            mine = Span(state, back.chunk, 0, 1, single.low, back.history)
            due = now + max(0, back.not_before_ms - wall) / 1000
            if back.history.company:
                company.append(mine)
                if len(company) < back.history.company:
                    continue
                self.books.put_back(Parcel(company, due, apart=True), now)
                company = []
            else:
                self.books.put_back(Parcel([mine], due), now)
        if company:
            self.books.put_back(Parcel(company, now, apart=True), now)

    def _pump_soon(self) -> None:
        """Once the current callback is done, however many asked for it."""
        if not self._pump_is_due:
            self._pump_is_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Give batches to the workers that wait, longest waiting first."""
        self._pump_is_due = False
        now = self.clock.now()
        dispatcher = self.books.dispatcher
        passed_over: list[Session] = []
        while self._hungry and self._may_deliver(now) and not dispatcher.idle(now):
            session = next(iter(self._hungry))
            del self._hungry[session]
            room = self._room(session)
            pick = dispatcher.probe(room, now) if self.guard.down else dispatcher.pick(room, now)
            too_large = dispatcher.too_large
            if too_large:
                self._oversized(too_large)
            if pick is not None:
                self._deliver(session, pick, now)
                if session.has_room():
                    self._hungry[session] = None
            elif too_large:
                # Nothing for this worker; another one may take larger messages.
                passed_over.append(session)
            else:
                self._hungry = {session: None, **self._hungry}
                break
        if passed_over:
            self._hungry = {**dict.fromkeys(passed_over), **self._hungry}
        self._set_alarm(now)

    def _may_deliver(self, now: float) -> bool:
        if self.draining or self.paused_because:
            return False
        if self.guard.down:
            return self._probing is None and now >= self._next_probe
        return self.budget.allows(len(self.books.leases), now)

    def _room(self, session: Session) -> Room:
        hard = session.hard_bytes
        room = min(int(self.settings.batch.bytes), hard)
        if session.credit.bytes:
            room = min(room, max(1, session.credit.bytes - session.unsettled_bytes))
        return Room(room, hard)

    def _deliver(self, session: Session, pick: Pick, now: float) -> None:
        spans = pick.spans
        limit = min(session.lease or self.settings.lease.max, self.settings.lease.max)
        lease = self.books.leases.grant(session, spans, now, limit)
        lease.apart = pick.apart
        if pick.origin:
            lease.origin = pick.origin
        lease.setbacks = pick.setbacks
        session.leases[lease.id] = lease
        session.unsettled_bytes += lease.size
        self.books.in_flight(spans)
        self.budget.sent(lease.records)
        if self.guard.down:
            self._probing = lease
        told = redeliveries(spans)
        self.counters.batches += 1
        self.counters.delivered += lease.records
        if told:
            self.counters.redelivered += sum(each.count for each in told)
        self.meters.batch_records.observe(lease.records)
        self.meters.closed_by[pick.closed_by] += 1
        first = spans[0]
        if len(spans) == 1:
            frames: Sequence[bytes] = first.chunk.frames[first.start : first.stop]
            lanes: tuple[int, ...] = (first.chunk.shown.number,)
        else:
            frames = [frame for span in spans for frame in span.chunk.frames[span.start : span.stop]]
            lanes = tuple(dict.fromkeys(span.chunk.shown.number for span in spans))
        session.consumer.deliver(
            Delivery(
                lease.id, first.chunk.shown.topic, lanes, frames, lease.records, lease.size, told, limit, pick.closed_by
            )
        )

    def _oversized(self, parcels: Iterable[Parcel]) -> None:
        """Records that some worker cannot take. If no worker can, do as the settings say."""
        largest = max((session.hard_bytes for session in self.sessions), default=0)
        for parcel in parcels:
            span = parcel.spans[0]
            bytes_ = span.chunk.size(span.start, span.start + 1)
            if bytes_ <= largest or parcel.state is not ParcelState.WAITING:
                continue
            where = f"{span.chunk.shown}/{span.chunk.positions[span.start]}"
            text = f"{bytes_} bytes are more than any connected client takes ({largest})"
            if self.settings.oversized is Oversized.HOLD:
                self._note("oversized", f"the record {where} is held: {text}")
            else:
                self.books.no_longer_waiting(parcel, ParcelState.ASIDE)
                self._dead_letter(parcel.spans, f"TOO_LARGE: {text}", worker="")

    # Home: from the workers to the broker

    def _settle(self, settlement: Settlement, now: float) -> SettleResult:
        result, lease, settled = self.books.leases.settle(settlement)
        if lease is None:
            self.counters.unknown_settlements += 1
            return result
        late = lease.phase is LeasePhase.ENDED
        if not late and any(span.lane.phase is LanePhase.GONE for each in settled for span in each.spans):
            for each in settled:
                self.books.landed(each.spans)
            result, settled = without_gone_lanes(result, settled)
        elif not late:
            for each in settled:
                self.books.landed(each.spans)
        if result.status is SettleStatus.STALE:
            self.counters.stale_settlements += 1
        for each in settled:
            if late:
                for span in each.spans:
                    span.lane.waiting -= span.records
            self._settle_part(lease, each, now)
        if lease.phase is LeasePhase.SETTLED and lease.id in lease.holder.leases:
            self.meters.settle_seconds.observe(now - lease.granted)
            self._let_go(lease)
            forget_records(lease)
        self._settled()
        return result

    def _settle_part(self, lease: Lease[Session], settled: Settled, now: float) -> None:
        spans, part, named = settled
        counters = self.counters
        failed = Failed(spans, named, lease.origin, lease.setbacks, lease.apart)
        if part.outcome is not Outcome.REJECT:
            self._rejects.settled(part.count, rejected=False)
        match part.outcome:
            case Outcome.ACK:
                counters.acked += part.count
                self.books.settle(spans)
                self.budget.success(now - lease.granted, len(self.books.leases) + 1, now)
                if self.guard.success(now):
                    self._recovered()
            case Outcome.NACK:
                counters.nacked += part.count
                self._batch_failed(lease, now)
                moves = self._verdicts.failed(failed, now, reason=part.reason, retry_after=part.retry_after)
                self._apply(moves, lease, now)
            case Outcome.RELEASE:
                counters.released += part.count
                self._apply(self._verdicts.released(failed), lease, now)
            case Outcome.OVERLOADED:
                counters.overloaded += part.count
                self.budget.overloaded(len(self.books.leases) + 1, now)
                self._apply(self._verdicts.overloaded(failed, part.retry_after), lease, now)
            case Outcome.REJECT:
                counters.rejected += part.count
                self._dead_letter(spans, f"REJECTED: {part.reason}" if part.reason else "REJECTED", lease.holder.name)
                self._rejects.settled(part.count, rejected=True)
                if self._rejects.alarming() and not self.paused_because:
                    self.pause("too many records are rejected; see the dead letters, then resume")

    def _batch_failed(self, lease: Lease[Session], now: float) -> None:
        self.budget.failure(len(self.books.leases) + 1, now)
        if self.guard.failure(lease.origin, now):
            log.warning("the handler seems down: probing with single records, nothing is dead-lettered")
            self._note("outage", "the handler fails for everything: single probes only until one succeeds")
            self._probe_failures = 0
            self._next_probe = now + self._probes.wait(1)
        elif self.guard.down and lease is self._probing:
            self._probe_failures += 1
            self._next_probe = now + self._probes.wait(self._probe_failures + 1)

    def _recovered(self) -> None:
        log.info("the handler has recovered")
        self._note("outage", "")
        self._probing = None
        self.budget.restart(len(self.books.leases))

    def _let_go(self, lease: Lease[Session]) -> None:
        """The lease is in its session's hands no more."""
        session = lease.holder
        if session.leases.pop(lease.id, None) is not None:
            session.unsettled_bytes -= lease.size
        if lease is self._probing:
            self._probing = None
        self.session_changed(session)

    def _end(self, lease: Lease[Session]) -> list[Span]:
        """End a lease without a word of its worker. Answers what is unsettled of it and still ours."""
        spans = self.books.leases.end(lease)
        self.books.landed(spans)
        self._let_go(lease)
        return [span for span in spans if span.lane.phase is not LanePhase.GONE]

    def _expire(self, now: float) -> None:
        for lease in self.books.leases.expire(now):
            spans = self._end(lease)
            self.counters.expired += count(spans)
            if spans:
                self._batch_failed(lease, now)
                moves = self._verdicts.failed(_failed(lease, spans), now, reason="EXPIRED", doubtful=True)
                self._apply(moves, lease, now, heirs=True)
            self._settled()

    def _apply(self, moves: Sequence[Move], lease: Lease[Session], now: float, *, heirs: bool = False) -> None:
        """Do what the verdicts say. `heirs`: the lease ended, and may be settled while its records wait."""
        self.counters.splits = self._verdicts.splits
        for move in moves:
            match move:
                case Back():
                    parcel = Parcel([*move.spans], now + move.after, move.apart, move.origin, move.setbacks)
                    if heirs:
                        parcel.ancestor = lease
                        lease.heirs.append(parcel)
                    self._put_back(parcel, now)
                case Dead():
                    self._dead_letter(move.spans, move.reason, lease.holder.name)
                case Drop():
                    self.counters.dropped += count(move.spans)
                    self.books.settle(move.spans)

    def _put_back(self, parcel: Parcel, now: float) -> None:
        parcel.spans = [span for span in parcel.spans if span.lane.phase is LanePhase.ACTIVE]
        if not parcel.spans:
            parcel.state = ParcelState.GONE
            return
        if self._parks and parcel.due - now > self.settings.parking.after:
            parcel.state = ParcelState.ASIDE
            self._park(parcel, now)
            return
        self.books.put_back(parcel, now)

    def _park(self, parcel: Parcel, now: float) -> None:
        wall = self.clock.wall_ms()
        for span in parcel.spans:
            span.lane.aside += span.records
            for single in span.singles():
                message = parking.park(single, now=now, due=parcel.due, wall_ms=wall, lanes=self._retry_lanes)
                self._aside.add(Aside(single, self.settings.retry_topic, message, parked=True))

    def _dead_letter(self, spans: Iterable[Span], reason: str, worker: str) -> None:
        wall = self.clock.wall_ms()
        for span in spans:
            span.lane.aside += span.records
            for single in span.singles():
                message = dead_letters.write(
                    single, group=self.settings.group_name, reason=reason, worker=worker, wall_ms=wall
                )
                self._aside.add(Aside(single, self.settings.dead_letter_topic, message, parked=False))

    def _written_aside(self, written: Sequence[Aside]) -> None:
        for aside in written:
            if aside.parked:
                self.counters.parked += 1
            else:
                self.counters.dead_lettered += 1
            if aside.span.lane.phase is not LanePhase.GONE:
                aside.span.lane.aside -= 1
                self.books.settle([aside.span])
        self._settled()

    def _settled(self) -> None:
        """Something was settled or came back: commit it, and see who may go now."""
        self._committing.want()
        self._settled_something.set()
        if self.fetching.anything_paused:
            self.fetching.room_changed()
        self._pump_soon()

    # Lanes

    def _lane_is_assigned(self, event: Assigned) -> None:
        before = self.books.lanes.get(event.lane)
        if before is not None:
            self._lanes_are_gone([before])
        parked = event.lane.topic == self.settings.retry_topic
        self.books.lanes[event.lane] = LaneState(event, self.settings.order, self.settings.window, parked=parked)
        self.fetching.room_changed()

    def _lane_advanced(self, event: Advanced) -> None:
        state = self.books.lanes.get(event.lane)
        if state is None:
            return
        state.ledger.advance(event.position)
        if event.lost:
            state.lost += event.lost
            log.warning(
                "records were removed before they could be read",
                extra={"lane": str(event.lane), "records": event.lost, "position": event.position},
            )
        self._settled()

    async def _leave(self, states: Sequence[LaneState], event: Revoked) -> None:
        """Lanes are about to move: no more deliveries, a short grace for what is in flight, a commit, then let go."""
        for state in states:
            state.phase = LanePhase.LEAVING
            for parcel in self.books.dispatcher.forget(state):
                if parcel.state is ParcelState.GONE:
                    self.books.leases.left(parcel)
            state.waiting = 0
        ends = self.clock.now() + event.grace
        await self._settled_or(ends, lambda: not any(state.in_flight or state.aside for state in states))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.1, ends - self.clock.now() + 0.5 * event.grace)):
                await self._committing.commit(states)
        self._lanes_are_gone(state for state in states if state.phase is not LanePhase.GONE)
        await self._source.release(event.lanes)

    def _lanes_are_gone(self, states: Iterable[LaneState]) -> None:
        told: dict[Session, list[bytes]] = {}
        for state in [*states]:
            for lease in self.books.lane_is_gone(state):
                told.setdefault(lease.holder, []).append(lease.id)
        for session, leases in told.items():
            session.consumer.notify(Notice(NoticeKind.REVOKED, tuple(leases)))
        self._settled_something.set()
        self.fetching.room_changed()

    def _lane_was_committed(self, state: LaneState) -> None:
        self.books.dispatcher.wake(state)
        if state.paused:
            self.fetching.room_changed()
        self._pump_soon()

    def _relieve(self, now: float) -> None:
        """A lane whose window is full waits for its slowest records: those that only wait are put aside."""
        if not self._parks:
            return
        for parcel in [*self.books.dispatcher.returns]:
            if parcel.due > now and any(span.lane.window.full() and not span.lane.parked for span in parcel.spans):
                self.books.no_longer_waiting(parcel, ParcelState.ASIDE)
                self._park(parcel, now)

    # Time

    def _set_alarm(self, now: float) -> None:
        """Wake when time alone will change something."""
        dispatcher = self.books.dispatcher
        times = [self.books.leases.next_deadline(), dispatcher.returns.next_due()]
        if self._hungry and not self.draining:
            times += [dispatcher.linger_ends(now), self.budget.next_token(now)]
            if self.guard.down and self._probing is None:
                times.append(self._next_probe)
        at = min((time for time in times if time is not None), default=None)
        if self._alarm is not None:
            if at is not None and self._alarm.when() == at and not self._alarm.cancelled():
                return
            self._alarm.cancel()
            self._alarm = None
        if at is not None:
            # Never now: what is due now and cannot go waits for something else than time.
            self._alarm = asyncio.get_running_loop().call_at(max(at, now + 0.001), self._sweep)

    def _sweep(self) -> None:
        self._alarm = None
        now = self.clock.now()
        self._expire(now)
        self._relieve(now)
        self._pump()

    async def _settled_or(self, ends: float, done: Callable[[], bool]) -> None:
        """Wait until `done`, looking whenever something was settled; no longer than until `ends`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(ends):
                while not done():
                    self._settled_something.clear()
                    await self._settled_something.wait()

    # Telling

    def _note(self, kind: str, text: str) -> None:
        if self.books.trouble(kind, text):
            log.warning(text) if text else log.info("over: %s", kind)

    def _notify(self, notice: Notice) -> None:
        for session in [*self.sessions]:
            session.consumer.notify(notice)

    def _loop_ended(self, task: "asyncio.Task[None]") -> None:
        """A loop only ends when it is cancelled; anything else is a bug, and must be loud."""
        if not task.cancelled() and task.exception() is not None:
            log.critical("a loop of the subscription failed", exc_info=task.exception())
            self._note("bug", f"the subscription stopped working: {task.exception()!r}")


def _failed(lease: Lease[Session], spans: Sequence[Span]) -> Failed:
    return Failed(spans, False, lease.origin, lease.setbacks, lease.apart)
