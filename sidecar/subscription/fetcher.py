"""Getting records from the broker: polled all the time, paused lane by lane when there is no room."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from time import time_ns

from sidecar.brokers.base import LaneEnd, Polled, Source
from sidecar.core.failures.backoff import Backoff
from sidecar.core.state.lane import LaneState
from sidecar.core.state.memory import Held, Memory
from sidecar.core.tracker import RecordTracker
from sidecar.model.errors import BrokerError, NotFound, Refused
from sidecar.model.records import Lane
from sidecar.observability.tracing import Tracer
from sidecar.subscription.session import Session
from sidecar.subscription.troubles import Troubles

#: seconds that a poll may wait
_POLL = 1.0


class Fetcher:
    """The fetch loop of a subscription. It never stops polling: that is what keeps a group membership alive."""

    def __init__(
        self,
        tracker: RecordTracker[Session],
        troubles: Troubles,
        source: Source,
        memory: Memory,
        backoff: Backoff,
        *,
        handle_poll: Callable[[Polled], None],
        window_full: Callable[[], None],
        tracer: Tracer | None = None,
    ) -> None:
        self._tracker = tracker
        self._troubles = troubles
        self._source = source
        self._memory = memory
        self._backoff = backoff
        self._take_in = handle_poll
        self._window_full = window_full
        self._tracer = tracer
        self._regulate_wanted = asyncio.Event()
        # One at a time: while a lane is being resumed it must not be taken for paused.
        self._regulating = asyncio.Lock()
        #: nothing more is wanted of any lane
        self.stopped = False
        self.opened = False
        #: the broker said no in a way that a person must mend
        self.refused = False
        self.anything_paused = False
        #: the ends of the lanes as last known
        self.ends: Mapping[Lane, LaneEnd] = {}

    def room_changed(self) -> None:
        """Records were settled, or lanes came or went: who is paused may change."""
        self._regulate_wanted.set()

    def stop(self) -> None:
        """Fetch nothing more, but keep polling."""
        self.stopped = True
        self.room_changed()

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                if not self.opened:
                    await self._source.open()
                    self.opened = True
                await self._regulate()
                records, size = self._memory.next_fetch(self._tracker.records, self._tracker.bytes)
                began = time_ns() if self._tracer is not None else 0
                polled = await self._source.poll(records, size, _POLL)
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
            self._take_in(polled)

    async def regulate(self) -> None:
        """The loop that resumes lanes while a poll waits."""
        while True:
            await self._regulate_wanted.wait()
            self._regulate_wanted.clear()
            if self.opened:
                try:
                    await self._regulate()
                except BrokerError:
                    # The next poll meets the same trouble, tells of it, and regulates again.
                    continue

    async def _regulate(self) -> None:
        async with self._regulating:
            await self._pause_and_resume()

    async def _pause_and_resume(self) -> None:
        lanes = self._tracker.lanes.values()
        full = self._memory.full(
            Held(state, state.unsettled_records, state.unsettled_bytes, state.parked) for state in lanes
        )
        pause: list[LaneState] = []
        resume: list[LaneState] = []
        for state in lanes:
            if self.stopped:
                state.held_by = "draining"
            elif state in full:
                state.held_by = "memory: too many records of this lane are unsettled"
            elif state.window.full():
                state.held_by = f"window: waits for the record at {state.ledger.floor}"
            else:
                state.held_by = ""
            wanted = bool(state.held_by)
            if wanted is not state.paused:
                (pause if wanted else resume).append(state)
        self.anything_paused = any(state.held_by for state in lanes)
        if any(state.window.full() for state in lanes):
            self._window_full()
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
                # Assigned again meanwhile: which of the two the call has met is not known.
                current.paused = None
                self.room_changed()
