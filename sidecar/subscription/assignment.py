"""Applies what a poll returns: lanes that are assigned and revoked, and the records of lanes."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence

from sidecar.brokers.base import Advanced, Lost, Polled, Revoked, Source, Trouble
from sidecar.core.failures import retry_topic
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.core.state.leases import Lease
from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup, count
from sidecar.core.tracker import RecordTracker
from sidecar.model.clock import Clock
from sidecar.model.records import Assigned, Chunk, Lane, Notice, NoticeKind
from sidecar.observability.logs import Log
from sidecar.settings import SubscriptionSettings
from sidecar.subscription.committer import Committer
from sidecar.subscription.events import SubscriptionEvents
from sidecar.subscription.session import Session
from sidecar.subscription.troubles import Troubles

#: lanes that a line of the log lists
_LISTED = 8

log = Log("lanes")


class AssignmentHandler:
    """Applies what a poll returns."""

    def __init__(
        self,
        settings: SubscriptionSettings,
        tracker: RecordTracker[Session],
        troubles: Troubles,
        clock: Clock,
        source: Source,
        committer: Committer,
        events: SubscriptionEvents,
    ) -> None:
        self._settings = settings
        self._tracker = tracker
        self._troubles = troubles
        self._clock = clock
        self._source = source
        self._committer = committer
        self._events = events
        #: one task for each revocation that is within its grace period
        self.leaving: set[asyncio.Task[None]] = set()
        #: set whenever something was settled
        self.progress = asyncio.Event()

    def handle_poll(self, polled: Polled) -> None:
        assigned = [event.lane for event in polled.events if isinstance(event, Assigned)]
        if assigned:
            self._log_lanes("lanes were assigned", assigned)
        for event in polled.events:
            match event:
                case Assigned():
                    self._assign(event)
                case Revoked():
                    self._log_lanes("lanes move to another sidecar", event.lanes)
                    lanes = self._known(event.lanes)
                    # Before the task starts: a lane that is lost meanwhile must stay GONE.
                    self._tracker.revoke_lanes(lanes)
                    self._notify_revoked(self._tracker.leases_of(lanes), self._clock.now() + event.grace)
                    task = asyncio.create_task(self._leave(lanes, event))
                    self.leaving.add(task)
                    task.add_done_callback(self.leaving.discard)
                case Lost():
                    self._log_lanes("lanes were lost to another sidecar", event.lanes)
                    self.drop_lanes(self._known(event.lanes))
                case Advanced():
                    self._advance(event)
                case Trouble():
                    self._troubles.set(event.kind, event.text)
        now = self._clock.now()
        for chunk in polled.chunks:
            lane = self._tracker.lanes.get(chunk.lane)
            # Chunks of lanes that are leaving or gone are not ours to deliver.
            if lane is not None and lane.phase is LanePhase.ACTIVE and chunk.positions:
                self._track(lane, chunk, now)
        if polled.chunks:
            self._events.records_arrived()

    def drop_lanes(self, lanes: Iterable[LaneState]) -> None:
        """These epochs of lanes are over: their leases become stale, and nothing is committed for them."""
        # The broker may report it twice: by an event, and as the result of a commit.
        going = [lane for lane in lanes if lane.phase is not LanePhase.GONE]
        self._notify_revoked(self._tracker.end_lanes(going), until=0.0)
        self.progress.set()
        self._events.lanes_changed()

    def _notify_revoked(self, leases: Iterable[Lease[Session]], until: float) -> None:
        """Tell each session which of its leases are about to be lost, or are."""
        revoked: dict[Session, list[bytes]] = {}
        for lease in leases:
            revoked.setdefault(lease.holder, []).append(lease.id)
        for session, ids in revoked.items():
            session.consumer.notify(Notice(NoticeKind.REVOKED, tuple(ids), until=until))

    async def wait_until_idle(self, ends: float, done: Callable[[], bool]) -> None:
        """Wait until `done`, which is checked whenever something was settled; at the latest until `ends`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(ends):
                while not done():
                    self.progress.clear()
                    await self.progress.wait()

    def _log_lanes(self, text: str, lanes: Collection[Lane]) -> None:
        """One line, however many lanes there are."""
        # Those of the retry topic are always the same, so they come last.
        ordered = sorted(lanes, key=lambda lane: (lane.topic == self._settings.retry_topic, lane))
        listed = [str(lane) for lane in ordered[:_LISTED]]
        more = [f"and {len(lanes) - _LISTED} more"] if len(lanes) > _LISTED else []
        log.info(text, subscription=self._settings.name, lanes=[*listed, *more])

    def _known(self, lanes: Collection[Lane]) -> list[LaneState]:
        return [state for lane, state in self._tracker.lanes.items() if lane in lanes]

    def _assign(self, event: Assigned) -> None:
        earlier = self._tracker.lanes.get(event.lane)
        if earlier is not None:
            self.drop_lanes([earlier])
        parked = event.lane.topic == self._settings.retry_topic
        self._tracker.add_lane(LaneState(event, self._settings.order, self._settings.window, parked=parked))
        self._events.lanes_changed()

    def _advance(self, event: Advanced) -> None:
        lane = self._tracker.lanes.get(event.lane)
        if lane is None:
            return
        lane.ledger.advance(event.position)
        if event.lost:
            self._tracker.counters.removed += event.lost
            log.warning(
                "records were removed before they could be read",
                subscription=self._settings.name,
                lane=event.lane,
                records=event.lost,
                position=event.position,
            )
        self._events.records_settled()

    async def _leave(self, lanes: Sequence[LaneState], event: Revoked) -> None:
        """Within the grace period: wait for what is in flight, commit, and release the lanes."""
        await self.wait_until_idle(self._clock.now() + event.grace, lambda: not any(map(_is_busy, lanes)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.1, event.grace)):
                await self._committer.commit_all(lanes)
        # A lane that was lost meanwhile may be assigned again by now: its new epoch must not be released.
        ours = [lane for lane in lanes if lane.phase is not LanePhase.GONE]
        self.drop_lanes(ours)
        await self._source.release([lane.lane for lane in ours])

    def _track(self, lane: LaneState, chunk: Chunk, now: float) -> None:
        slices = self._tracker.track(lane, chunk, now)
        if lane.parked:
            for slice_ in slices:
                self._unpark(slice_, now)
        if lane.window.short_of_reach():
            self._committer.request_reach()
        if count(slices) < len(chunk.positions):
            # Records that were settled by an earlier run may close a gap, and then there is something to commit.
            self._committer.request_commit()

    def _unpark(self, parked: RecordSlice, now: float) -> None:
        """Records of the retry topic wait in memory until they are due.

        Neighbours that failed together are due at the same time and have the same `max_batch_size`: they stay together,
        in groups of that size, so that none waits for a record that did not fail with it.
        """
        wall = self._clock.wall_ms()
        together: list[RecordSlice] = []
        due, most = 0.0, 0
        for single in parked.singles():
            original = retry_topic.unpark(
                single.chunk,
                single.start,
                now=now,
                wall_ms=wall,
                possibly_processed=parked.history.possibly_processed,
            )
            self._tracker.counters.unparked += 1
            restored = self._tracker.restore(single, original.chunk, original.history)
            its_due = now + max(0, original.not_before_ms - wall) / 1000
            its_most = original.history.max_batch_size
            if its_most <= 1:
                self._tracker.put_back(RedeliveryGroup([restored], its_due, isolated=its_most == 1), now)
                continue
            if together and ((its_due, its_most) != (due, most) or len(together) >= most):
                self._tracker.put_back(RedeliveryGroup(together, due, isolated=True), now)
                together = []
            together.append(restored)
            due, most = its_due, its_most
        if together:
            self._tracker.put_back(RedeliveryGroup(together, due, isolated=True), now)


def _is_busy(lane: LaneState) -> bool:
    return lane.phase is not LanePhase.GONE and bool(lane.in_flight or lane.aside)
