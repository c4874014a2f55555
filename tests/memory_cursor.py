"""A group of the broker in memory that is read by ranges."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.cursor import Cursor, GroupState
from sidecar.brokers.fencing import Attached, check_token, next_token
from sidecar.model.records import Commit, Lane

if TYPE_CHECKING:
    from tests.memory_broker import MemoryBroker


class MemoryCursor(Cursor):
    def __init__(self, broker: "MemoryBroker", spec: SourceSpec) -> None:
        self._broker = broker
        self._spec = spec

    async def open(self) -> None:
        for topic in self._spec.topics:
            self._broker.ensure(topic)

    async def lanes(self) -> Mapping[Lane, LaneEnd]:
        return {lane: end for topic in self._spec.topics for lane, end in (await self._broker.lane_ends(topic)).items()}

    async def fetch_state(self) -> GroupState:
        group, topics = self._spec.group, self._spec.topics
        cursors = self._broker.cursors.items()
        positions = {lane: one.position for (name, lane), one in cursors if name == group and lane.topic in topics}
        return GroupState(positions, self._broker.readers.get(group))

    async def attach(self, reader: str, now_ms: int) -> Attached:
        self._broker.check_unconsumed(self._spec)
        before = self._broker.readers.get(self._spec.group)
        attached = Attached(next_token(before.token if before else 0, now_ms), reader, now_ms)
        self._broker.readers[self._spec.group] = attached
        return attached

    async def pin(self, token: int, positions: Mapping[Lane, int]) -> None:
        self._check(token)
        for lane, position in positions.items():
            self._broker.cursors.setdefault((self._spec.group, lane), Commit(position))

    async def commit(self, token: int, positions: Mapping[Lane, int]) -> None:
        self._check(token)
        for lane, position in positions.items():
            before = self._broker.cursors.get((self._spec.group, lane))
            if before is None or before.position < position:
                self._broker.cursors[self._spec.group, lane] = Commit(position)

    async def move(self, positions: Mapping[Lane, int]) -> None:
        self._broker.check_unconsumed(self._spec)
        for lane, position in positions.items():
            self._broker.cursors[self._spec.group, lane] = Commit(position)

    async def close(self) -> None:
        """There is nothing to close."""

    def _check(self, token: int) -> None:
        self._broker.check_unconsumed(self._spec)
        check_token(token, self._broker.readers.get(self._spec.group), exact=True)
