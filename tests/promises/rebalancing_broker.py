"""The broker in memory with lanes that move between the sidecars of a group, as in a rebalance of Kafka."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from sidecar.brokers.base import Lost, Revoked, SourceSpec
from sidecar.model.errors import LaneGone
from sidecar.model.records import Commit, Lane
from tests.memory_broker import MemoryBroker, MemoryOptions, MemorySource

#: seconds for which a revoked lane may be kept
GRACE = 3.0


class RebalancingSource(MemorySource):
    """A member of its group."""

    broker: "RebalancingBroker"

    def __init__(self, broker: "RebalancingBroker", spec: SourceSpec) -> None:
        super().__init__(broker, spec)
        self.broker = broker
        #: revoked and not yet released
        self.leaving: set[Lane] = set()

    async def open(self) -> None:
        for topic in self.topics:
            self.broker.ensure(topic, self.spec.own_topics.get(topic))
        self.broker.enter(self)
        self.broker.share_out(self.spec.group)

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        mine = {lane: commit for lane, commit in commits.items() if self.broker.owners.get(lane) is self}
        for lane, commit in mine.items():
            self.broker.cursors[self.spec.group, lane] = commit
        if gone := commits.keys() - mine.keys():
            raise LaneGone(gone)

    async def release(self, lanes: Collection[Lane]) -> None:
        self.let_go(lanes)

    async def close(self) -> None:
        await super().close()
        self.leaving.clear()
        self.broker.owners = {lane: owner for lane, owner in self.broker.owners.items() if owner is not self}
        self.broker.share_out(self.spec.group)

    def revoke(self, lanes: Iterable[Lane]) -> None:
        for lane in (lanes := frozenset(lanes)):
            del self.readings[lane]
        self.leaving |= lanes
        self.tell(Revoked(lanes, GRACE))
        asyncio.get_running_loop().call_later(GRACE, self.let_go, lanes)

    def lose(self) -> None:
        """Give all lanes to the others at once, as if this member were dead; it is told afterwards."""
        self.broker.members.remove(self)
        others = self.broker.members
        lanes = sorted({*self.readings, *self.leaving})
        self.readings.clear()
        self.leaving.clear()
        for number, lane in enumerate(lanes):
            self.broker.give(lane, others[number % len(others)])
        self.tell(Lost(frozenset(lanes)))

    def let_go(self, lanes: Collection[Lane]) -> None:
        for lane in self.leaving & set(lanes):
            self.leaving.discard(lane)
            if self.broker.owners.get(lane) is self:
                del self.broker.owners[lane]
        self.broker.share_out(self.spec.group)


class RebalancingBroker(MemoryBroker):
    """Shares the lanes of its one group out evenly among its sources, as a consumer group of Kafka does.

    One group for each broker is enough for a test.
    """

    traits = replace(MemoryOptions.traits, rebalances=True)

    def __init__(self) -> None:
        super().__init__()
        self.members: list[RebalancingSource] = []
        self.owners: dict[Lane, RebalancingSource] = {}

    def subscribe(self, spec: SourceSpec) -> RebalancingSource:
        return RebalancingSource(self, spec)

    def enter(self, source: MemorySource) -> None:
        assert isinstance(source, RebalancingSource)
        self._sources.append(source)
        self.members.append(source)

    def exit(self, source: MemorySource) -> None:
        super().exit(source)
        if source in self.members:
            self.members.remove(source)

    def share_out(self, group: str) -> None:
        """Give every lane to its member as soon as its present owner releases it."""
        if not self.members:
            return
        topics = self.members[0].topics
        lanes = [lane.lane for topic in sorted(topics) for lane in self.ensure(topic)]
        wanted = {lane: self.members[number % len(self.members)] for number, lane in enumerate(lanes)}
        for member in self.members:
            moving = [lane for lane in member.readings if wanted[lane] is not member]
            if moving:
                member.revoke(moving)
        for lane, member in wanted.items():
            if lane not in self.owners:
                self.give(lane, member)

    def give(self, lane: Lane, member: RebalancingSource) -> None:
        self.owners[lane] = member
        member.assign(self.lane(lane))
