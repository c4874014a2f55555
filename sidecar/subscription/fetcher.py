"""Polls the broker, and pauses lanes that have no room for more records."""

import asyncio
from collections.abc import Iterable, Mapping
from time import time_ns

from sidecar.brokers.base import LaneEnd, Source
from sidecar.core.failures.backoff import Backoff
from sidecar.core.state.lane import LaneState
from sidecar.core.state.memory_limit import LaneUsage, MemoryLimit
from sidecar.core.tracker import RecordTracker
from sidecar.model.errors import BrokerError, NotFound, Refused
from sidecar.model.records import Lane
from sidecar.observability.tracing import Tracer
from sidecar.subscription.events import SubscriptionEvents
from sidecar.subscription.session import Session
from sidecar.subscription.troubles import Troubles

#: seconds that a poll may wait
_POLL_TIMEOUT = 1.0


class Fetcher:
    """Never stops polling, also while all lanes are paused: that keeps the group membership alive."""

    def __init__(
        self,
        tracker: RecordTracker[Session],
        troubles: Troubles,
        source: Source,
        memory: MemoryLimit,
        backoff: Backoff,
        events: SubscriptionEvents,
        tracer: Tracer | None,
    ) -> None:
        self._tracker = tracker
        self._troubles = troubles
        self._source = source
        self._memory = memory
        self._backoff = backoff
        self._events = events
        self._tracer = tracer
        self._recheck_requested = asyncio.Event()
        # One check at a time: a lane that is being resumed must not be taken for a paused one.
        self._flow_control_lock = asyncio.Lock()
        #: every lane is paused for good
        self.stopped = False
        self.opened = False
        #: the broker refuses until a person changes something
        self.refused = False
        self.anything_paused = False
        #: the last known ends of the lanes
        self.ends: Mapping[Lane, LaneEnd] = {}

    def recheck_flow_control(self) -> None:
        """Records were settled, or lanes came or went: check which lanes are to be paused."""
        self._recheck_requested.set()

    def stop(self) -> None:
        """Fetch nothing more, but keep polling."""
        self.stopped = True
        self.recheck_flow_control()

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                if not self.opened:
                    await self._source.open()
                    self.opened = True
                await self._control_flow()
                records, size = self._memory.next_fetch(self._tracker.records, self._tracker.bytes)
                began = time_ns() if self._tracer is not None else 0
                polled = await self._source.poll(records, size, _POLL_TIMEOUT)
                self.ends = await self._source.ends()
                self._tracker.meters.refetched_bytes = self._source.refetched_bytes
                self._tracker.meters.revoke_seconds = self._source.revoke_seconds
            except BrokerError as error:
                failures += 1
                self.refused = isinstance(error, Refused | NotFound)
                self._troubles.set("broker", str(error))
                await asyncio.sleep(self._backoff.wait(failures))
                continue
            if failures:
                failures = 0
                self.refused = False
                self._troubles.clear("broker")
            if self._tracer is not None and polled.chunks:
                self._tracer.polled(began, polled.chunks)
            self._events.polled(polled)

    async def flow_control_loop(self) -> None:
        """Pauses and resumes lanes while a poll waits."""
        while True:
            await self._recheck_requested.wait()
            self._recheck_requested.clear()
            if self.opened:
                try:
                    await self._control_flow()
                except BrokerError:
                    # The next poll meets the same error, reports it, and checks again.
                    continue

    async def _control_flow(self) -> None:
        async with self._flow_control_lock:
            await self._pause_and_resume()

    async def _pause_and_resume(self) -> None:
        lanes = self._tracker.lanes.values()
        full = self._memory.full(
            LaneUsage(state, state.unsettled_records, state.unsettled_bytes, state.parked) for state in lanes
        )
        pause: list[LaneState] = []
        resume: list[LaneState] = []
        window_full = False
        for state in lanes:
            beyond_window = state.window.full()
            window_full |= beyond_window
            if self.stopped:
                state.held_by = "draining"
            elif state in full:
                state.held_by = "memory: too many records of this lane are unsettled"
            elif beyond_window:
                state.held_by = f"window: waits for the record at {state.ledger.low_watermark}"
            else:
                state.held_by = ""
            wanted = bool(state.held_by)
            if wanted is not state.paused:
                (pause if wanted else resume).append(state)
        self.anything_paused = any(state.held_by for state in lanes)
        if window_full:
            self._events.window_full()
        if pause:
            await self._source.pause([state.lane for state in pause])
            self._note_paused(pause, paused=True)
        if resume:
            await self._source.resume([state.lane for state in resume])
            self._note_paused(resume, paused=False)

    def _note_paused(self, states: Iterable[LaneState], *, paused: bool) -> None:
        for state in states:
            current = self._tracker.lanes.get(state.lane)
            if current is state:
                state.paused = paused
            elif current is not None:
                # Assigned again meanwhile: it is not known which of the two epochs the call has reached.
                current.paused = None
                self.recheck_flow_control()
