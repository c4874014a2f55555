"""One consumption of topics under one group: the one owner of all its state, on one event loop.

Out: broker `poll` -> assigning -> lanes `track` -> ordering -> dispatcher `pick` -> leases `grant` -> delivering.
Home: settling -> leases `settle` -> lanes `settle` -> committing -> broker. One back edge: verdicts, by the returns.

Nothing between two awaits is interrupted, so there is nothing to lock. Its loops are fetching, committing, and writing
aside; the sweep is an alarm that is set to the next moment at which time alone changes something.
"""

import asyncio
import contextlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sidecar.brokers.base import Broker, SeekTarget, SourceSpec
from sidecar.core.failures.backoff import Backoff
from sidecar.core.failures.outage import OutageDetector
from sidecar.core.scheduling.budget import Budget
from sidecar.core.scheduling.dispatcher import Dispatcher
from sidecar.core.scheduling.selection import Batching
from sidecar.core.state.lane import LaneState
from sidecar.core.state.memory import Memory
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
from sidecar.subscription.fetcher import Fetcher
from sidecar.subscription.session import Consumer, Session
from sidecar.subscription.settlement import SettlementHandler
from sidecar.subscription.status_report import report
from sidecar.subscription.troubles import Troubles

log = Log("subscription")

#: seconds that the last commit of a drain gets, however little time is left: it spares the next life a replay
LAST_COMMIT = 1.0


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
        tracer: Tracer | None = None,
    ) -> None:
        self.settings = settings
        self.broker = broker
        self.clock = clock = clock or Clock()
        rng = rng or random.Random()
        self._tracer = tracer
        self.tracker: RecordTracker[Session] = RecordTracker(
            Dispatcher(Batching(settings.batch), settings.order), prefix
        )
        tracker = self.tracker
        self.troubles = Troubles(settings.name)
        self.counters = tracker.counters
        self.meters = tracker.meters
        self.sessions: dict[Session, None] = {}
        self.outage = OutageDetector(settings.outage)
        self.budget = Budget(settings.budget)
        own_topics = {settings.retry_topic: settings.parking.lanes}
        self._source = broker.subscribe(SourceSpec(settings.group_name, settings.topics, settings.start, own_topics))
        trouble = Backoff(0.1, 2.0, 10.0, 0.2, rng)
        self._settling = SettlementHandler(
            settings,
            tracker,
            self.troubles,
            clock,
            broker,
            self.outage,
            self.budget,
            rng,
            settled=self._settled,
            pause=self.pause,
            tracer=tracer,
        )
        self._delivering = Deliverer(
            settings,
            tracker,
            clock,
            self.outage,
            self.budget,
            rng,
            sweep=self._sweep,
            oversized=lambda groups: self._settling.oversized(self.sessions, groups),
            tracer=tracer,
        )
        self._settling.delivering = self._delivering
        self._assigning = AssignmentHandler(
            settings if broker.traits.positions_count_records else _without_span(settings),
            tracker,
            self.troubles,
            clock,
            self._source,
            arrived=self._delivering.schedule_delivery,
            settled=self._settled,
            lanes_changed=self._lanes_changed,
        )
        self._committing = Committer(
            settings,
            tracker,
            self.troubles,
            self._source,
            trouble,
            with_beyond=broker.traits.keeps_acks_beyond,
            lost=self._assigning.drop_lanes,
            committed=self._committed,
        )
        self._assigning.committing = self._committing
        self.fetching = Fetcher(
            tracker,
            self.troubles,
            self._source,
            Memory(settings.memory),
            trouble,
            handle_poll=self._assigning.handle_poll,
            window_full=lambda: self._settling.park_when_window_full(clock.now()),
            tracer=tracer,
        )
        self.paused_because = ""
        self.draining = False
        #: a bug ended one of its loops: only a new process will help
        self.broken = ""
        self._tasks: list[asyncio.Task[None]] = []

    # Life

    async def start(self) -> None:
        """Start the loops and return at once. Trouble with the broker shows in the status and is tried again."""
        writing = (writer.run() for writer in self._settling.writers)
        loops = (self.fetching.run(), self.fetching.regulate(), self._committing.run(), *writing)
        self._tasks = [asyncio.create_task(loop) for loop in loops]
        for task in self._tasks:
            task.add_done_callback(self._loop_ended)

    async def drain(self, deadline: float) -> None:
        """Stop in order, within so many seconds: fetch no more, let workers settle, commit, close the source last."""
        ends = self.clock.now() + deadline
        self.draining = self._delivering.stopped = True
        self.fetching.stop()
        self._notify(Notice(NoticeKind.DRAINING, detail="the sidecar is stopping"))
        # What a topic has refused may be so for good, and is not waited for.
        writers = self._settling.writers
        await self._assigning.wait_until_idle(
            ends, lambda: not self.tracker.leases and not any(one.busy for one in writers)
        )
        for session in [*self.sessions]:
            session.end(SessionEnd.ORDERLY)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(LAST_COMMIT, ends - self.clock.now())):
                await self._committing.commit_all(self.tracker.lanes.values())
        await self.close()

    async def close(self) -> None:
        """Stop at once. What is not committed is replayed."""
        self.draining = True
        self._delivering.close()
        # Before anything is waited for: nobody commits what is settled from now on, so it must not be said to count.
        lanes = [*self.tracker.lanes]
        self.tracker.lanes_are_gone([*self.tracker.lanes.values()])
        tasks = [*self._tasks, *self._assigning.leaving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._committing.close()
        await self._source.release(lanes)
        await self._source.close()
        if self._tracer is not None:
            self._tracer.close()

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
        self._delivering.session_changed(session)

    def session_ended(self, session: Session, how: SessionEnd) -> None:
        self.sessions.pop(session, None)
        self._delivering.session_changed(session)
        if how is not SessionEnd.DETACHED:
            now = self._up_to_date()
            self._settling.session_ended(session, how, now)

    def written(self, leases: Iterable[bytes]) -> None:
        """The batches were written to their worker: their time starts now."""
        now = self.clock.now()
        for lease in leases:
            self.tracker.leases.mark_written(lease, now)
        self._delivering.set_alarm(now)

    def extend(self, lease: bytes, lease_for: float) -> Extended:
        now = self._up_to_date()
        return self.tracker.leases.extend(lease, lease_for, self.settings.lease.max, now)

    def check(self, settlements: Sequence[Settlement]) -> None:
        """Raises `InvalidRequest` if any of them does not fit its batch. For those who settle elsewhere first."""
        self.tracker.leases.check(settlements)

    def settle(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        """Take the word of workers. Raises `InvalidRequest` before anything is applied."""
        self.check(settlements)
        return self._settling.settle(settlements, self._up_to_date())

    # Operators

    def pause(self, reason: str) -> None:
        """Deliver nothing until `resume`."""
        if self.paused_because:
            return
        self.paused_because = reason or "by an operator"
        self._delivering.stopped = True
        self.troubles.set("paused", f"paused: {self.paused_because}")
        self._notify(Notice(NoticeKind.PAUSED, detail=self.paused_because))

    def resume(self) -> None:
        """Go on after `pause`; while the handler seems down, probe at once."""
        self._settling.rejects.reset()
        if self.paused_because:
            self.paused_because = ""
            self._delivering.stopped = self.draining
            self.troubles.clear("paused")
            self._notify(Notice(NoticeKind.RESUMED))
        self._delivering.probe_now()

    def lanes(self) -> list[Lane]:
        """What is assigned now, without the retry topic."""
        return [lane for lane, state in self.tracker.lanes.items() if not state.parked]

    @property
    def can_seek(self) -> bool:
        return self.broker.traits.seeks

    async def seek(self, targets: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        """Move lanes. What is leased from them becomes stale. Raises what `Source.seek` raises."""
        return await self._committing.seek(targets)

    def status(self) -> SubscriptionStatus:
        return report(self, self.fetching.ends)

    # What its parts tell each other

    def _settled(self) -> None:
        """Something was settled or came back: commit it, and see who may go now."""
        self._committing.request_commit()
        self._assigning.progress.set()
        if self.fetching.anything_paused:
            self.fetching.room_changed()
        self._delivering.schedule_delivery()

    def _lanes_changed(self) -> None:
        self.fetching.room_changed()
        # A worker may have waited for a record that went with its lane.
        self._delivering.schedule_delivery()

    def _committed(self, state: LaneState) -> None:
        self.tracker.dispatcher.wake(state)
        if self.fetching.anything_paused:
            self.fetching.room_changed()
        self._delivering.schedule_delivery()

    def _up_to_date(self) -> float:
        """The time, once what it has ended has ended: the alarm may be a moment late."""
        now = self.clock.now()
        self._settling.expire(now)
        return now

    def _sweep(self) -> None:
        now = self._up_to_date()
        self._settling.park_when_window_full(now)
        self._delivering.pump()

    def _notify(self, notice: Notice) -> None:
        for session in [*self.sessions]:
            session.consumer.notify(notice)

    def _loop_ended(self, task: "asyncio.Task[None]") -> None:
        """A loop only ends when it is cancelled; anything else is a bug, and must be loud."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.bug("a loop of the subscription failed", error, subscription=self.settings.name)
            self.broken = f"the subscription stopped working: {error!r}"
            self.troubles.set("bug", self.broken)


def _without_span(settings: SubscriptionSettings) -> SubscriptionSettings:
    """Where a distance of positions says nothing, the window is measured in records and bytes alone."""
    return replace(settings, window=replace(settings.window, span=1 << 64))
