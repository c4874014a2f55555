"""A subscription with mode `leases`: one group that consumes topics, and the only owner of all its state.

All of it runs on one event loop. Nothing is interrupted between two awaits, so there are no locks on the state. The
loops are those of `Fetcher`, `Committer`, `SideTopicWriter` and `LeftTopics`; `Deliverer` sets a timer to the next
moment at which time alone changes something.
"""

import asyncio
import contextlib
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from sidecar.brokers.base import Broker, Polled, SeekTarget, SourceSpec
from sidecar.core.failures.backoff import Backoff
from sidecar.core.failures.outage import OutageDetector
from sidecar.core.scheduling.budget import Budget
from sidecar.core.scheduling.dispatcher import Dispatcher
from sidecar.core.scheduling.selection import Batching
from sidecar.core.state.lane import LaneState
from sidecar.core.state.memory_limit import MemoryLimit
from sidecar.core.state.record_slices import RedeliveryGroup
from sidecar.core.tracker import RecordTracker
from sidecar.model.clock import Clock
from sidecar.model.errors import Stopping
from sidecar.model.records import (
    ClientInfo,
    Credit,
    Extended,
    Lane,
    Notice,
    NoticeKind,
    SessionEnd,
    Settlement,
    SettleResult,
)
from sidecar.observability.logs import Log
from sidecar.observability.status import SubscriptionStatus
from sidecar.observability.tracing import Tracer
from sidecar.settings import SubscriptionSettings
from sidecar.subscription.assignment import AssignmentHandler
from sidecar.subscription.committer import Committer
from sidecar.subscription.delivery import Deliverer
from sidecar.subscription.events import SideTopic, SubscriptionEvents
from sidecar.subscription.fetcher import Fetcher
from sidecar.subscription.left_topics import LeftTopics
from sidecar.subscription.session import Consumer, Session
from sidecar.subscription.settlement import SettlementHandler
from sidecar.subscription.side_topic_writer import PendingWrite, SideTopicWriter
from sidecar.subscription.status_report import report
from sidecar.subscription.troubles import Troubles

log = Log("subscription")

#: seconds for the last commit of a drain, however little time is left: it spares the next run of the group a replay
LAST_COMMIT_TIMEOUT = 1.0
#: between retries of calls of the broker: seconds of the first wait, factor, longest wait, and the share that is random
_RETRY_BACKOFF = (0.1, 2.0, 10.0, 0.2)

#: troubles during an outage: with workers, and without
_HANDLER_FAILS = "the handler fails for everything: single probes until one succeeds, nothing is dead-lettered"
_NO_WORKER = "no worker is connected, and the last ones failed for everything: nothing is tried until one comes"


class Subscription(SubscriptionEvents):
    """Made once for each configured subscription with mode `leases`; `start` before anything else."""

    def __init__(
        self,
        settings: SubscriptionSettings,
        broker: Broker,
        *,
        prefix: bytes,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.settings = settings
        self.broker = broker
        self.clock = clock = clock or Clock()
        self._tracer = tracer
        rng = rng or random.Random()
        dispatcher = Dispatcher(Batching(settings.batch), settings.order)
        self.tracker = tracker = RecordTracker[Session](dispatcher, prefix)
        self.counters = tracker.counters
        self.meters = tracker.meters
        self.troubles = troubles = Troubles(settings.name)
        self.sessions: dict[Session, None] = {}
        self.outage = OutageDetector(settings.outage)
        self.budget = Budget(settings.budget)
        own_topics = {settings.retry_topic: settings.parking.lanes}
        self._source = broker.subscribe(SourceSpec(settings.group_name, settings.topics, settings.start, own_topics))
        backoff = Backoff(*_RETRY_BACKOFF, rng)
        side_topics = {
            SideTopic.RETRY: (settings.retry_topic, settings.parking.lanes),
            SideTopic.DEAD_LETTERS: (settings.dead_letter_topic, 1),
        }
        self._writers = {
            topic: SideTopicWriter(topic, name, lanes, broker, backoff, troubles, self)
            for topic, (name, lanes) in side_topics.items()
        }
        self._deliverer = Deliverer(settings, tracker, clock, self.outage, self.budget, rng, self, tracer)
        self._settlement = SettlementHandler(
            settings,
            tracker,
            troubles,
            clock,
            self.outage,
            self.budget,
            rng,
            self._deliverer,
            self._writers,
            self,
            tracer,
        )
        self._committer = Committer(settings, tracker, troubles, self._source, backoff, broker.traits, self)
        self._assignment = AssignmentHandler(
            settings if broker.traits.positions_count_records else _without_span(settings),
            tracker,
            troubles,
            clock,
            self._source,
            self._committer,
            self,
        )
        self.fetcher = Fetcher(tracker, troubles, self._source, MemoryLimit(settings.memory), backoff, self, tracer)
        self._left_topics = LeftTopics(settings, troubles, broker, self._source)
        self.paused_because = ""
        self.draining = False
        #: while it drains: until when leases can be settled
        self.drains_until = 0.0
        #: a bug ended one of its loops: only a restart of the process helps
        self.broken = ""
        self._tasks: list[asyncio.Task[None]] = []

    # Life

    async def start(self) -> None:
        """Start the loops and return at once. Trouble with the broker shows in the status and is retried."""
        writing = (writer.run() for writer in self._writers.values())
        loops = [self.fetcher.run(), self.fetcher.flow_control_loop(), self._committer.run(), *writing]
        if self.broker.traits.finds_left_topics:
            loops.append(self._left_topics.run())
        self._tasks = [asyncio.create_task(loop) for loop in loops]
        for task in self._tasks:
            task.add_done_callback(self._loop_ended)

    async def drain(self, deadline: float) -> None:
        """Stop in order, within this many seconds: fetch no more, let workers settle, commit, close the source last."""
        ends = self.clock.now() + deadline
        self.draining = self._deliverer.stopped = True
        self.drains_until = ends
        self.fetcher.stop()
        self._notify(self._draining_notice())
        # Records that a topic refuses may be refused for good, so nobody waits for them.
        writers = self._writers.values()
        await self._assignment.wait_until_idle(
            ends, lambda: not self.tracker.leases and not any(writer.busy for writer in writers)
        )
        for session in [*self.sessions]:
            session.end(SessionEnd.ORDERLY)
        for lane in self.tracker.lanes.values():
            lane.stopped = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(LAST_COMMIT_TIMEOUT, ends - self.clock.now())):
                await self._committer.commit_all(self.tracker.lanes.values())
        await self.close()

    async def close(self) -> None:
        """Stop at once. What is not committed is replayed."""
        self.draining = True
        self._deliverer.close()
        # Before the first await: what is settled from now on is not committed any more, so it must be answered STALE.
        lanes = [*self.tracker.lanes]
        self.tracker.end_lanes([*self.tracker.lanes.values()])
        tasks = [*self._tasks, *self._assignment.leaving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._committer.close()
        await self._source.release(lanes)
        await self._source.close()
        if self._tracer is not None:
            self._tracer.close()

    # Workers

    def connect(
        self,
        consumer: Consumer,
        *,
        client: ClientInfo,
        credit: Credit,
        max_message_bytes: int,
        lease: float | None,
        batch_records: int = 0,
    ) -> Session:
        """A session for one app process. Raises `Stopping` while the sidecar drains."""
        if self.draining:
            raise Stopping("the sidecar is stopping; connect again in a moment")
        session = Session(self, consumer, client, max_message_bytes, lease, self.clock.now(), batch_records)
        self.sessions[session] = None
        self.outage_changed()
        self._tell_state(consumer)
        session.grant(credit)
        return session

    def deliver_at_once(self) -> None:
        """Deliver what there is for sessions with room, rather than after the current callback."""
        self._deliverer.deliver_scheduled()

    def suspend(self, session: Session, consumer: Consumer) -> None:
        """The session lost its connection, and its client may come back: it keeps its leases, whose time goes on."""
        session.suspend(consumer, self.clock.now())

    def reconnect(self, session: Session, consumer: Consumer, client: ClientInfo) -> None:
        """The client of the session is back."""
        session.resume(consumer, client)
        self.counters.resumed_sessions += 1
        self._tell_state(consumer)

    def keep_only(self, session: Session, held: Collection[bytes]) -> None:
        """The client says that these are the leases that have reached it. Deliver the session's others again."""
        self.written(lease for lease in held if lease in session.leases)
        lost = [lease for lease in session.leases.values() if lease.id not in held]
        self._settlement.end_unreceived(lost, self._expire())

    def written(self, leases: Iterable[bytes]) -> None:
        """The batches of these leases were written to their worker: their time starts now."""
        now = self.clock.now()
        self.tracker.leases.mark_written(leases, now)
        self._deliverer.set_timer(now)

    def extend(self, lease: bytes, lease_for: float) -> Extended:
        """Move the deadline of a lease to this many seconds from now, within the limits of the settings."""
        now = self._expire()
        return self.tracker.leases.extend(lease, lease_for, self.settings.lease.max, now)

    def settle(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        """Apply workers' settlements."""
        return self._settlement.settle(settlements, self._expire())

    def abandon(self, lease: bytes, *, alone: bool) -> None:
        """The worker died with this batch, though the session goes on. `alone`: it had no other batch meanwhile."""
        self._settlement.abandon(lease, self._expire(), alone=alone)

    # Operators

    def pause(self, reason: str) -> None:
        """Deliver nothing until `resume`."""
        if self.paused_because:
            return
        self.paused_because = reason or "by an operator"
        self._deliverer.stopped = True
        self.troubles.set("paused", f"paused: {self.paused_because}")
        self._notify(Notice(NoticeKind.PAUSED, detail=self.paused_because))

    def resume(self) -> None:
        """Deliver again after `pause`. During an outage: probe at once."""
        self._settlement.rejects.reset()
        if self.paused_because:
            self.paused_because = ""
            self._deliverer.stopped = self.draining
            self.troubles.clear("paused")
            self._notify(Notice(NoticeKind.RESUMED))
        self._deliverer.probe_now()

    def lanes(self) -> list[Lane]:
        """The assigned lanes, without those of the retry topic."""
        return [lane for lane, state in self.tracker.lanes.items() if not state.parked]

    @property
    def can_seek(self) -> bool:
        return self.broker.traits.seeks

    async def seek(self, targets: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        """Move lanes. Leases of their records become stale. Raises what `Committer.seek` raises."""
        return await self._committer.seek(targets)

    def status(self) -> SubscriptionStatus:
        return report(self, self.fetcher.ends)

    # What follows from what its parts report: see `SubscriptionEvents`

    def session_changed(self, session: Session) -> None:
        self._deliverer.session_changed(session)

    def session_ended(self, session: Session, how: SessionEnd) -> None:
        self.sessions.pop(session, None)
        self.outage_changed()
        self._deliverer.session_changed(session)
        if how is not SessionEnd.DETACHED:
            self._settlement.end_session(session, how, self._expire())

    def polled(self, polled: Polled) -> None:
        self._assignment.handle_poll(polled)

    def window_full(self) -> None:
        self._settlement.park_when_window_full(self.clock.now())

    def records_arrived(self) -> None:
        self._deliverer.schedule_delivery()

    def lanes_changed(self) -> None:
        self.fetcher.recheck_flow_control()
        # A worker may have waited for a record that is gone with its lane.
        self._deliverer.schedule_delivery()

    def lane_committed(self, lane: LaneState) -> None:
        self.tracker.dispatcher.wake(lane)
        self._capacity_freed()

    def lanes_lost(self, lanes: Iterable[LaneState]) -> None:
        self._assignment.drop_lanes(lanes)

    def timer_fired(self) -> None:
        self._settlement.park_when_window_full(self._expire())
        self._deliverer.deliver_ready()

    def records_too_large(self, groups: Sequence[RedeliveryGroup]) -> None:
        self._settlement.handle_too_large(groups, self.sessions)

    def records_settled(self) -> None:
        self._committer.request_commit()
        self._assignment.progress.set()
        self._capacity_freed()

    def outage_changed(self) -> None:
        if not self.outage.certain:
            self.troubles.clear("outage")
        else:
            self.troubles.set("outage", _HANDLER_FAILS if self.sessions else _NO_WORKER)

    def too_many_rejected(self) -> None:
        self.pause("too many records are rejected; look at the dead letters, then resume")

    def written_aside(self, topic: SideTopic, writes: Sequence[PendingWrite]) -> None:
        self._settlement.written_aside(topic, writes)

    def too_large_to_park(self, write: PendingWrite) -> None:
        self._settlement.keep_in_memory(write)

    # Within

    def _capacity_freed(self) -> None:
        """A lane has room for more records, and workers may get what waited for it."""
        if self.fetcher.anything_paused:
            self.fetcher.recheck_flow_control()
        self._deliverer.schedule_delivery()

    def _expire(self) -> float:
        """End the leases whose time is over: the timer may be a moment late. Returns the time."""
        now = self.clock.now()
        self._settlement.expire(now)
        return now

    def _tell_state(self, consumer: Consumer) -> None:
        if self.draining:
            consumer.notify(self._draining_notice())
        if self.paused_because:
            consumer.notify(Notice(NoticeKind.PAUSED, detail=self.paused_because))

    def _draining_notice(self) -> Notice:
        return Notice(NoticeKind.DRAINING, detail="the sidecar is stopping", until=self.drains_until)

    def _notify(self, notice: Notice) -> None:
        for session in [*self.sessions]:
            session.consumer.notify(notice)

    def _loop_ended(self, task: "asyncio.Task[None]") -> None:
        """Loops end only when they are cancelled; anything else is a bug and must be loud."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.bug("a loop of the subscription failed", error, subscription=self.settings.name)
            self.broken = f"the subscription stopped working: {error!r}"
            self.troubles.set("bug", self.broken)


def _without_span(settings: SubscriptionSettings) -> SubscriptionSettings:
    """Where the distance of positions means nothing, the window is measured in records and bytes alone."""
    return replace(settings, window=replace(settings.window, span=1 << 64))
