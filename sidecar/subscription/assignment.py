"""In: lanes that come and go, and the records that the broker sends."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence

from sidecar.brokers.base import Advanced, Lost, Polled, Revoked, Source, Trouble
from sidecar.core.failures import retry_topic
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup, count, size
from sidecar.core.tracker import RecordTracker
from sidecar.model.clock import Clock
from sidecar.model.records import Assigned, Chunk, Lane, Notice, NoticeKind
from sidecar.observability.logs import Log
from sidecar.settings import SubscriptionSettings
from sidecar.subscription.committer import Committer
from sidecar.subscription.session import Session
from sidecar.subscription.troubles import Troubles

#: lanes that a line of the log names
_SHOWN = 8

log = Log("lanes")


class AssignmentHandler:
    """Takes in what a poll brought."""

    def __init__(
        self,
        settings: SubscriptionSettings,
        tracker: RecordTracker[Session],
        troubles: Troubles,
        clock: Clock,
        source: Source,
        *,
        arrived: Callable[[], None],
        settled: Callable[[], None],
        lanes_changed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._tracker = tracker
        self._troubles = troubles
        self._clock = clock
        self._source = source
        self._arrived = arrived
        self._settled = settled
        self._lanes_changed = lanes_changed
        self.committing: Committer
        #: revoked lanes within their grace
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
                    self._log_lanes("lanes move to another", event.lanes)
                    states = self._known(event.lanes)
                    # At once, before anything else can run: a lane that is lost meanwhile must stay lost.
                    for leaving in states:
                        leaving.phase = LanePhase.LEAVING
                    self._tracker.forget_waiting(states)
                    task = asyncio.create_task(self._leave(states, event))
                    self.leaving.add(task)
                    task.add_done_callback(self.leaving.discard)
                case Lost():
                    self._log_lanes("lanes were lost to another", event.lanes)
                    self.drop_lanes(self._known(event.lanes))
                case Advanced():
                    self._advance(event)
                case Trouble():
                    self._troubles.set(event.kind, event.text)
        now = self._clock.now()
        for chunk in polled.chunks:
            state = self._tracker.lanes.get(chunk.lane)
            # A chunk of a lane that is leaving, or that moved while it was on its way, is not ours to deliver.
            if state is not None and state.phase is LanePhase.ACTIVE and chunk.positions:
                self._track(state, chunk, now)
        if polled.chunks:
            self._arrived()

    def drop_lanes(self, states: Iterable[LaneState]) -> None:
        """Lanes are ours no more: their leases become stale, and nothing is committed for them."""
        # The broker may say so twice: by an event, and in answer to a commit that was under way.
        going = [state for state in states if state.phase is not LanePhase.GONE]
        told: dict[Session, list[bytes]] = {}
        for lease in self._tracker.lanes_are_gone(going):
            told.setdefault(lease.holder, []).append(lease.id)
        for session, leases in told.items():
            session.consumer.notify(Notice(NoticeKind.REVOKED, tuple(leases)))
        self.progress.set()
        self._lanes_changed()

    async def wait_until_idle(self, ends: float, done: Callable[[], bool]) -> None:
        """Wait until `done`, looking whenever something was settled; no longer than until `ends`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(ends):
                while not done():
                    self.progress.clear()
                    await self.progress.wait()

    def _log_lanes(self, what: str, lanes: Collection[Lane]) -> None:
        """One line, however many lanes there are."""
        # Those of the retry topic are always the same, and come last.
        ordered = sorted(lanes, key=lambda lane: (lane.topic == self._settings.retry_topic, lane))
        shown = [str(lane) for lane in ordered[:_SHOWN]]
        more = [f"and {len(lanes) - _SHOWN} more"] if len(lanes) > _SHOWN else []
        log.info(what, subscription=self._settings.name, lanes=[*shown, *more])

    def _known(self, lanes: Iterable[object]) -> list[LaneState]:
        wanted = set(lanes)
        return [state for lane, state in self._tracker.lanes.items() if lane in wanted]

    def _assign(self, event: Assigned) -> None:
        before = self._tracker.lanes.get(event.lane)
        if before is not None:
            self.drop_lanes([before])
        parked = event.lane.topic == self._settings.retry_topic
        self._tracker.lanes[event.lane] = LaneState(event, self._settings.order, self._settings.window, parked=parked)
        self._lanes_changed()

    def _advance(self, event: Advanced) -> None:
        state = self._tracker.lanes.get(event.lane)
        if state is None:
            return
        state.ledger.advance(event.position)
        if event.lost:
            self._tracker.counters.removed += event.lost
            log.warning(
                "records were removed before they could be read",
                subscription=self._settings.name,
                lane=event.lane,
                records=event.lost,
                position=event.position,
            )
        self._settled()

    async def _leave(self, states: Sequence[LaneState], event: Revoked) -> None:
        """Lanes are about to move: no more deliveries, a short grace for what is in flight, a commit, then let go."""
        ends = self._clock.now() + event.grace
        await self.wait_until_idle(ends, lambda: not any(map(_is_busy, states)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.1, event.grace)):
                await self.committing.commit_all(states)
        # One that was lost meanwhile may be ours again by now, in a new epoch, which must not be let go.
        mine = [state for state in states if state.phase is not LanePhase.GONE]
        self.drop_lanes(mine)
        await self._source.release([state.lane for state in mine])

    def _track(self, state: LaneState, chunk: Chunk, now: float) -> None:
        slices = state.track(chunk, now)
        records = count(slices)
        self._tracker.counters.fetched += records
        self._tracker.records += records
        self._tracker.bytes += size(slices)
        for slice_ in slices:
            if state.parked:
                self._unpark(state, slice_, now)
            else:
                state.ordering.add(slice_)
        self._tracker.dispatcher.wake(state)
        if records < len(chunk.positions):
            # Records that an earlier life settled may close a gap, and then there is something to commit.
            self.committing.request_commit()

    def _unpark(self, state: LaneState, slice_: RecordSlice, now: float) -> None:
        """Records of the retry topic wait in memory until they are due."""
        wall = self._clock.wall_ms()
        failed_together: list[RecordSlice] = []
        due, most = 0.0, 0
        for single in slice_.singles():
            possibly_processed = slice_.history.possibly_processed
            back = retry_topic.unpark(
                single.chunk, single.start, now=now, wall_ms=wall, possibly_processed=possibly_processed
            )
            self._tracker.counters.unparked += 1
            larger = back.chunk.ends[-1] - single.size
            state.unsettled_bytes += larger
            self._tracker.bytes += larger
            single.chunk.drop(single.start, single.stop)
            mine = RecordSlice(state, back.chunk, 0, 1, single.low, back.history)
            its_due = now + max(0, back.not_before_ms - wall) / 1000
            if back.history.max_batch_size <= 1:
                self._tracker.put_back(RedeliveryGroup([mine], its_due, isolated=back.history.max_batch_size == 1), now)
                continue
            # Those that failed together are due together, in parts of one size: nobody waits for who did not.
            if failed_together and (
                (its_due, back.history.max_batch_size) != (due, most) or len(failed_together) >= most
            ):
                self._tracker.put_back(RedeliveryGroup(failed_together, due, isolated=True), now)
                failed_together = []
            failed_together.append(mine)
            due, most = its_due, back.history.max_batch_size
        if failed_together:
            self._tracker.put_back(RedeliveryGroup(failed_together, due, isolated=True), now)


def _is_busy(state: LaneState) -> bool:
    return state.phase is not LanePhase.GONE and bool(state.in_flight or state.aside)
