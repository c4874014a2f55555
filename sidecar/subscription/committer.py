"""Commits what is settled, continuously, and moves lanes."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping

from sidecar.brokers.base import SeekTarget, Source, Traits
from sidecar.core.failures.backoff import Backoff
from sidecar.core.state.lane import LanePhase, LaneState
from sidecar.core.tracker import RecordTracker
from sidecar.model.errors import BrokerError, LaneGone, Stopping
from sidecar.model.records import Commit, Lane
from sidecar.settings import SubscriptionSettings
from sidecar.subscription.events import SubscriptionEvents
from sidecar.subscription.session import Session
from sidecar.subscription.troubles import Troubles


class Committer:
    """Makes one commit or seek at a time, so that no commit of an earlier epoch can follow a seek."""

    def __init__(
        self,
        settings: SubscriptionSettings,
        tracker: RecordTracker[Session],
        troubles: Troubles,
        source: Source,
        backoff: Backoff,
        traits: Traits,
        events: SubscriptionEvents,
    ) -> None:
        self._settings = settings
        self._tracker = tracker
        self._troubles = troubles
        self._source = source
        self._backoff = backoff
        self._with_beyond = traits.keeps_acks_beyond
        self._with_reach = traits.keeps_reach
        self._events = events
        self._requested = asyncio.Event()
        #: deliveries wait for it
        self._urgent = asyncio.Event()
        self._turn = asyncio.Lock()
        #: seeks that are under way, whether or not a caller still waits for them
        self._seeks: set[asyncio.Task[Mapping[Lane, int]]] = set()

    def request_commit(self) -> None:
        """Something was settled: commit it soon."""
        self._requested.set()

    def request_reach(self) -> None:
        """Records can only be delivered once the broker has a further reach."""
        self._requested.set()
        self._urgent.set()

    async def run(self) -> None:
        failures = 0
        while True:
            await self._requested.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.commit_every):
                    await self._urgent.wait()
            self._requested.clear()
            self._urgent.clear()
            if await self.commit(self._tracker.lanes.values()):
                failures = 0
            else:
                failures += 1
                self._requested.set()
                await asyncio.sleep(self._backoff.wait(failures))

    async def commit(self, lanes: Iterable[LaneState]) -> bool:
        """Commit what is settled in these lanes. Returns whether the broker has all of it."""
        lanes = list(lanes)
        async with self._turn:
            commits: dict[Lane, Commit] = {}
            sent: list[tuple[LaneState, Commit, int]] = []
            for state in lanes:
                if state.phase is LanePhase.GONE:
                    continue
                commit = self._next_commit(state)
                if commit is not None:
                    commits[state.lane] = commit
                    sent.append((state, commit, state.uncommitted))
                    state.commit_sent(commit)
            if not commits:
                return True
            return await self._send(commits, sent)

    async def commit_all(self, lanes: Iterable[LaneState]) -> None:
        """Commit until nothing is left, also what is settled while a commit is under way. Ends when a commit fails."""
        lanes = list(lanes)
        while await self.commit(lanes) and any(map(self._is_behind, lanes)):
            pass

    def _is_behind(self, state: LaneState) -> bool:
        return state.phase is not LanePhase.GONE and self._next_commit(state) is not None

    def _next_commit(self, state: LaneState) -> Commit | None:
        return state.next_commit(with_beyond=self._with_beyond, with_reach=self._with_reach)

    async def _send(self, commits: Mapping[Lane, Commit], sent: list[tuple[LaneState, Commit, int]]) -> bool:
        gone: frozenset[Lane] = frozenset()
        try:
            async with asyncio.timeout(self._settings.commit_timeout):
                await self._source.commit(commits)
        except LaneGone as error:
            gone = error.lanes
            self._events.lanes_lost([state for state, _, _ in sent if state.lane in gone])
        except (BrokerError, TimeoutError) as error:
            for state, _, _ in sent:
                state.ledger.commit_failed()
            self._tracker.counters.failed_commits += 1
            text = str(error) or f"no answer within {self._settings.commit_timeout:g} s"
            self._troubles.set("commit", f"commits are held back: {text}")
            return False
        self._tracker.counters.commits += 1
        self._troubles.clear("commit")
        for state, commit, uncommitted in sent:
            if state.lane in gone or state.phase is LanePhase.GONE:
                continue
            state.commit_done(commit, uncommitted)
            if state.window.short_of_reach():
                self.request_reach()
            self._events.lane_committed(state)
        return True

    async def seek(self, targets: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        """Move lanes. Their leases become stale. Raises what `Source.seek` raises: `LaneGone` if only some were moved,
        anything else if none was; after `Stopping` it is not known. Goes on if the caller is cancelled."""
        # The broker may have moved the lanes already. A seek that went on outside of its turn would undo a later one,
        # and one that stopped half-way would leave the lanes to commits of their earlier epoch.
        seek = asyncio.create_task(self._seek(targets))
        self._seeks.add(seek)
        seek.add_done_callback(self._seeks.discard)
        try:
            return await asyncio.shield(seek)
        except asyncio.CancelledError:
            if seek.cancelled():
                raise Stopping("the sidecar is stopping; ask again in a moment") from None
            raise

    async def close(self) -> None:
        """Give up the seeks that are under way. The source must be closed next."""
        seeks = [*self._seeks]
        for seek in seeks:
            seek.cancel()
        await asyncio.gather(*seeks, return_exceptions=True)

    async def _seek(self, targets: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        async with self._turn:
            before = [self._tracker.lanes[lane] for lane in targets if lane in self._tracker.lanes]
            try:
                positions = await self._source.seek(targets)
            except LaneGone as error:
                self._end([state for state in before if state.lane not in error.lanes])
                raise
            except BrokerError:
                # The broker may have stored the targets as committed; then a restart would begin there.
                for state in before:
                    state.ledger.commit_failed()
                self.request_commit()
                raise
            self._end(before)
            return positions

    def _end(self, moved: Iterable[LaneState]) -> None:
        # The new epoch may have begun while the call was under way: only the old one ends here.
        self._events.lanes_lost([state for state in moved if state.phase is not LanePhase.GONE])
