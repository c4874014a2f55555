"""Seeks that fail."""

import asyncio
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.brokers.base import AtPosition, SeekTarget
from sidecar.core.state.lane import LaneState
from sidecar.model.errors import BrokerError, LaneGone, Unavailable
from sidecar.model.records import Assigned, Commit, Lane, Order, Run
from sidecar.settings import WindowSettings
from sidecar.subscription.committer import Committer
from sidecar.subscription.troubles import Troubles

ONE, OTHER = Lane("orders", 0), Lane("orders", 1)
TARGETS: Mapping[Lane, SeekTarget] = {ONE: AtPosition(70), OTHER: AtPosition(70)}


class Setup:
    """Two lanes that are committed, and a broker that does not seek. Also source, backoff and events."""

    def __init__(self, error: BrokerError) -> None:
        self.lanes = {
            lane: LaneState(Assigned(lane, 0), Order.NONE, WindowSettings(), parked=False) for lane in TARGETS
        }
        for state in self.lanes.values():
            state.ledger.track(range(20))
            state.ledger.settle(Run(0, 20))
            state.ledger.commit_sent()
        self.lost: list[Lane] = []
        self.told: asyncio.Queue[Mapping[Lane, Commit]] = asyncio.Queue()
        self._error = error
        me: Any = self
        settings: Any = SimpleNamespace(commit_every=0.0, commit_timeout=5.0)
        tracker: Any = SimpleNamespace(lanes=self.lanes, counters=SimpleNamespace(commits=0))
        traits: Any = SimpleNamespace(keeps_acks_beyond=True, keeps_reach=False)
        self.committer = Committer(settings, tracker, Troubles("orders"), me, me, traits, me)

    def lanes_lost(self, lanes: Iterable[LaneState]) -> None:
        self.lost += [state.lane for state in lanes]

    def lane_committed(self, lane: LaneState) -> None:
        pass

    async def seek(self, targets: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        raise self._error

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        self.told.put_nowait(commits)


def play(body: Any) -> None:
    asyncio.run(asyncio.wait_for(body(), 5.0))


def test_positions_are_committed_again_after_a_seek_that_failed() -> None:
    """It may have stored the targets all the same; a restart would begin there."""

    async def body() -> None:
        setup = Setup(Unavailable("no answer"))
        running = asyncio.create_task(setup.committer.run())
        with pytest.raises(Unavailable):
            await setup.committer.seek(TARGETS)
        assert await setup.told.get() == {ONE: Commit(20), OTHER: Commit(20)}
        assert setup.lost == []
        running.cancel()

    play(body)


def test_lanes_are_moved_although_others_went_away_meanwhile() -> None:
    async def body() -> None:
        setup = Setup(LaneGone([OTHER]))
        with pytest.raises(LaneGone):
            await setup.committer.seek(TARGETS)
        assert setup.lost == [ONE], "its old epoch ends; for the other lane an event follows"
        assert await setup.committer.commit(setup.lanes.values())
        assert setup.told.empty()

    play(body)
