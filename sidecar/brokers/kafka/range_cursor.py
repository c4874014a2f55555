"""The contract's `Cursor`: the positions of a group that is read by ranges.

Positions are stored by a non-member, which Kafka accepts while the group has no members. Kafka cannot compare and store
in one step. So the token is compared first, and a commit in flight while another reader attaches may still be stored.
It can make the lag look wrong until the new reader commits; no reader starts from it. Each commit stores the token of
its reader again, so that the newest token is stored in the end.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.fencing import Attached, Fence, check_token, decode, encode, newest, next_token
from sidecar.brokers.kafka.offset_client import OffsetClient, StoredPosition
from sidecar.brokers.range_cursor import Cursor, GroupState
from sidecar.model.errors import NotFound, Unavailable
from sidecar.model.records import Lane

if TYPE_CHECKING:
    from sidecar.brokers.kafka.broker import KafkaBroker

#: how often an attachment is stored again that a late commit has overwritten
_ATTACH_TRIES = 3


class KafkaCursor(Cursor):
    def __init__(self, broker: "KafkaBroker", spec: SourceSpec) -> None:
        self._broker = broker
        self._spec = spec
        self._offset_client: OffsetClient | None = None
        #: the reader that attached here last
        self._mine: Attached | None = None

    async def open(self) -> None:
        await self._broker.prepare_topics(self._spec)
        if self._offset_client is None:
            self._offset_client = OffsetClient(self._broker.clients, self._spec.group)

    async def lanes(self) -> Mapping[Lane, LaneEnd]:
        return await self._broker.admin.ends(await self._lanes())

    async def fetch_state(self) -> GroupState:
        stored = await self._client.stored(await self._lanes())
        fences = {lane: decode(each.metadata) for lane, each in stored.items()}
        # A position without a fence was set by a tool.
        pinned = {lane: stored[lane].position for lane, fence in fences.items() if fence is None or fence.pinned}
        return GroupState(pinned, newest(fences.values()))

    async def attach(self, reader: str, now_ms: int) -> Attached:
        state = await self.fetch_state()
        before = state.attached.token if state.attached else 0
        attached = self._mine = Attached(next_token(before, now_ms), reader, now_ms)
        for _ in range(_ATTACH_TRIES):
            pinned = bool(state.positions)
            await self._store(state.positions if pinned else await self._first_start(), Fence(attached, pinned))
            state = await self.fetch_state()
            if state.attached is not None and state.attached.token >= attached.token:
                break
        return attached

    async def pin(self, token: int, positions: Mapping[Lane, int]) -> None:
        state = await self._checked_state(token)
        new = {lane: position for lane, position in positions.items() if lane not in state.positions}
        await self._store(new, Fence(self._reader(token, state), pinned=True))

    async def commit(self, token: int, positions: Mapping[Lane, int]) -> None:
        state = await self._checked_state(token)
        # Positions that do not move are stored, too: in a group without members, Kafka forgets a position that was not
        # stored for a week (offsets.retention.minutes).
        moved = {lane: max(position, state.positions.get(lane, 0)) for lane, position in positions.items()}
        await self._store(moved, Fence(self._reader(token, state), pinned=True))

    async def move(self, positions: Mapping[Lane, int]) -> None:
        attached = (await self.fetch_state()).attached
        await self._store(positions, Fence(attached, pinned=True) if attached else None)

    async def close(self) -> None:
        client, self._offset_client = self._offset_client, None
        if client is not None:
            await client.close()

    async def _checked_state(self, token: int) -> GroupState:
        state = await self.fetch_state()
        check_token(token, state.attached, exact=False)
        return state

    def _reader(self, token: int, state: GroupState) -> Attached:
        """The reader that has a token, which was checked. If it is newer than the stored one, a tool that set positions
        or a late commit has overwritten it; it is stored again, without the name if that is not known."""
        known = (state.attached, self._mine)
        return next((one for one in known if one is not None and one.token == token), Attached(token, "", 0))

    async def _store(self, positions: Mapping[Lane, int], fence: Fence | None) -> None:
        text = encode(fence) if fence else ""
        await self._client.store({lane: StoredPosition(position, text) for lane, position in positions.items()})

    async def _first_start(self) -> dict[Lane, int]:
        """Where a group that has no position yet stores its token."""
        first = min(await self._lanes())
        return {first: (await self._broker.admin.ends([first]))[first].start}

    async def _lanes(self) -> list[Lane]:
        admin = self._broker.admin
        topics = await admin.topics(await admin.matching(self._spec.topics))
        lanes = [lane for topic in topics.values() for lane in topic.lanes]
        if not lanes:
            raise NotFound(f"There is no topic {', '.join(map(repr, self._spec.topics))}. Create it first.")
        return lanes

    @property
    def _client(self) -> OffsetClient:
        if self._offset_client is None:
            raise Unavailable("The cursor is not open.")
        return self._offset_client
