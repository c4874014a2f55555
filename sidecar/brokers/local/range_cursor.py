"""The contract's Cursor on the embedded broker: every check and its write are one transaction."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.fencing import Attached
from sidecar.brokers.local.queries import group_state
from sidecar.brokers.range_cursor import Cursor, GroupState
from sidecar.model.errors import Unavailable
from sidecar.model.records import Commit, Lane

if TYPE_CHECKING:
    from sidecar.brokers.local.broker import LocalBroker


class LocalCursor(Cursor):
    def __init__(self, broker: "LocalBroker", spec: SourceSpec) -> None:
        self._broker = broker
        self._spec = spec
        self._id: int | None = None

    async def open(self) -> None:
        self._broker.check_unconsumed(self._spec)
        self._id = await self._broker.write(lambda store: store.groups.ensure(self._spec.group, self._spec.topics))

    async def lanes(self) -> Mapping[Lane, LaneEnd]:
        found: dict[Lane, LaneEnd] = {}
        for topic in self._spec.topics:
            found.update(await self._broker.lane_ends(topic))
        return found

    async def fetch_state(self) -> GroupState:
        group = self._group
        found = await self._broker.read_with(group_state, group)
        return GroupState(
            {lane: position for lane, position in found.positions.items() if lane.topic in self._spec.topics},
            found.attached,
        )

    async def attach(self, reader: str, now_ms: int) -> Attached:
        group = self._group
        return await self._broker.write(lambda store: store.groups.attach(group, reader, now_ms))

    async def pin(self, token: int, positions: Mapping[Lane, int]) -> None:
        group, stored = self._group, self._by_id(positions)
        await self._broker.write(lambda store: store.groups.pin(group, token, stored))

    async def commit(self, token: int, positions: Mapping[Lane, int]) -> None:
        group, stored = self._group, self._by_id(positions)
        await self._broker.write(lambda store: store.groups.advance(group, token, stored))

    async def move(self, positions: Mapping[Lane, int]) -> None:
        group = self._group
        commits = {lane: Commit(position) for lane, position in self._by_id(positions).items()}
        await self._broker.write(lambda store: store.groups.save(group, commits))

    async def close(self) -> None:
        self._id = None

    @property
    def _group(self) -> int:
        self._broker.check_unconsumed(self._spec)
        if self._id is None:
            raise Unavailable("The cursor is not open.")
        return self._id

    def _by_id(self, positions: Mapping[Lane, int]) -> dict[int, int]:
        return {self._broker.view(lane).id: position for lane, position in positions.items()}
