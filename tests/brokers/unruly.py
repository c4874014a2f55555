"""A broker in memory that rebalances and fails when it is told to: for tests of the core."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sidecar.brokers.base import Lost, Revoked, SourceSpec
from sidecar.brokers.memory import MemoryBroker, MemoryOptions, MemorySource
from sidecar.errors import BrokerError, Unavailable
from sidecar.model import Commit, Lane, Message, Place


class UnrulyBroker(MemoryBroker):
    """Several sources of one group may be open: give each its lanes with `revoke`, `lose` and `give`."""

    traits = replace(MemoryBroker.traits, rebalances=True)

    def __init__(self, options: MemoryOptions | None = None) -> None:
        super().__init__(options)
        self._publish_errors: list[BrokerError] = []

    def fail_next_publishes(self, count: int, error: BrokerError | None = None) -> None:
        self._publish_errors += [error or Unavailable("This publish was told to fail.")] * count

    def subscribe(self, spec: SourceSpec) -> "UnrulySource":
        return UnrulySource(self, spec)

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        if self._publish_errors:
            raise self._publish_errors.pop(0)
        return await super().publish(topic, messages)

    def enter(self, source: MemorySource) -> None:
        self._sources.append(source)


class UnrulySource(MemorySource):
    def __init__(self, broker: UnrulyBroker, spec: SourceSpec) -> None:
        super().__init__(broker, spec)
        self._revoked: set[Lane] = set()
        self._commit_errors: list[BrokerError] = []
        self._commits_may_go = asyncio.Event()
        self._commits_may_go.set()

    def give(self, *lanes: Lane) -> None:
        """The lanes are this source's, from where the group is in them."""
        for lane in lanes:
            self._revoked.discard(lane)
            self.assign(self._broker.lane(lane))

    def revoke(self, *lanes: Lane, grace: float = 3.0) -> None:
        """The lanes go as soon as they are released. Commits for them are taken until then."""
        self._revoked.update(lanes)
        for lane in lanes:
            self.readings[lane].paused = True
        self.tell(Revoked(frozenset(lanes), grace))

    def lose(self, *lanes: Lane) -> None:
        """The lanes are gone: nothing is taken for them any more."""
        self._drop(lanes)
        self.tell(Lost(frozenset(lanes)))

    def fail_next_commits(self, count: int, error: BrokerError | None = None) -> None:
        self._commit_errors += [error or Unavailable("This commit was told to fail.")] * count

    def hold_commits(self) -> None:
        """Commits wait until `let_commits_go`."""
        self._commits_may_go.clear()

    def let_commits_go(self) -> None:
        self._commits_may_go.set()

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        await self._commits_may_go.wait()
        if self._commit_errors:
            raise self._commit_errors.pop(0)
        await super().commit(commits)

    async def release(self, lanes: Collection[Lane]) -> None:
        self._drop(self._revoked.intersection(lanes))

    async def resume(self, lanes: Collection[Lane]) -> None:
        await super().resume([lane for lane in lanes if lane not in self._revoked])

    def _drop(self, lanes: Collection[Lane]) -> None:
        for lane in lanes:
            self._revoked.discard(lane)
            self.readings.pop(lane, None)
