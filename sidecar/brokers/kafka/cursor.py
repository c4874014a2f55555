"""A group of Kafka that is read by ranges: positions are stored without a member, which Kafka takes while it has none.

Kafka cannot compare and store in one step. So the token is compared first, and a commit that is under way in the very
moment in which another reader attaches may still be stored. It may mislead whoever looks at the lag until the new
reader commits; nothing is read by it. Each commit stores the token of its reader again, so that the newest is there in
the end.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.cursor import Cursor, GroupState
from sidecar.brokers.fencing import Attached, Fence, check_token, decode, encode, newest, next_token
from sidecar.brokers.kafka.joining import prepare_topics
from sidecar.brokers.kafka.offset_client import Clerk, Stored
from sidecar.model.errors import NotFound, Unavailable
from sidecar.model.records import Lane

if TYPE_CHECKING:
    from sidecar.brokers.kafka.broker import KafkaBroker

#: how often an attachment is stored again that a late commit has overwritten
_TRIES = 3


class KafkaCursor(Cursor):
    def __init__(self, broker: "KafkaBroker", spec: SourceSpec) -> None:
        self._broker = broker
        self._spec = spec
        self._clerk: Clerk | None = None
        #: who attached here last
        self._mine: Attached | None = None

    async def open(self) -> None:
        broker = self._broker
        await prepare_topics(broker, self._spec)
        if self._clerk is None:
            self._clerk = Clerk(broker.options, self._spec.group, broker.reasons, broker.chatter)

    async def lanes(self) -> Mapping[Lane, LaneEnd]:
        return await self._broker.admin.ends(await self._lanes())

    async def fetch_state(self) -> GroupState:
        stored = await self._stored()
        fences = {lane: decode(one.metadata) for lane, one in stored.items()}
        return GroupState(_pinned(stored, fences), newest(fences.values()))

    async def attach(self, reader: str, now_ms: int) -> Attached:
        stored = await self._stored()
        fences = {lane: decode(one.metadata) for lane, one in stored.items()}
        before = newest(fences.values())
        attached = self._mine = Attached(next_token(before.token if before else 0, now_ms), reader, now_ms)
        for _ in range(_TRIES):
            pinned = _pinned(stored, fences)
            await self._store(pinned or await self._carrier(), Fence(attached, bool(pinned)))
            stored = await self._stored()
            fences = {lane: decode(one.metadata) for lane, one in stored.items()}
            found = newest(fences.values())
            if found is not None and found.token >= attached.token:
                break
        return attached

    async def pin(self, token: int, positions: Mapping[Lane, int]) -> None:
        standing = await self._checked(token)
        new = {lane: position for lane, position in positions.items() if lane not in standing.positions}
        await self._store(new, Fence(self._of(token, standing), pinned=True))

    async def commit(self, token: int, positions: Mapping[Lane, int]) -> None:
        standing = await self._checked(token)
        # Those that do not move are stored, too: Kafka forgets what is not stored again for a week in a group that has
        # no members (offsets.retention.minutes).
        moved = {lane: max(position, standing.positions.get(lane, 0)) for lane, position in positions.items()}
        await self._store(moved, Fence(self._of(token, standing), pinned=True))

    async def move(self, positions: Mapping[Lane, int]) -> None:
        attached = (await self.fetch_state()).attached
        text = encode(Fence(attached, pinned=True)) if attached else ""
        await self._asking.store({lane: Stored(position, text) for lane, position in positions.items()})

    async def close(self) -> None:
        clerk, self._clerk = self._clerk, None
        if clerk is not None:
            await clerk.close()

    async def _checked(self, token: int) -> GroupState:
        standing = await self.fetch_state()
        check_token(token, standing.attached, exact=False)
        return standing

    def _of(self, token: int, standing: GroupState) -> Attached:
        """Who has a token that was checked. One that is newer than what is stored has lost its entry to a tool that
        has set positions, or to a late commit; it is stored again, if need be without the name."""
        known = (standing.attached, self._mine)
        return next((one for one in known if one is not None and one.token == token), Attached(token, "", 0))

    async def _store(self, positions: Mapping[Lane, int], fence: Fence) -> None:
        text = encode(fence)
        await self._asking.store({lane: Stored(position, text) for lane, position in positions.items()})

    async def _carrier(self) -> dict[Lane, int]:
        """Where a group that has no position yet carries its token."""
        first = min(await self._lanes())
        return {first: (await self._broker.admin.ends([first]))[first].start}

    async def _stored(self) -> dict[Lane, Stored]:
        return await self._asking.stored(await self._lanes())

    async def _lanes(self) -> list[Lane]:
        admin = self._broker.admin
        topics = await admin.topics(await admin.fitting(self._spec.topics))
        lanes = [Lane(topic.name, number) for topic in topics.values() for number in range(topic.lanes)]
        if not lanes:
            raise NotFound(f"There is no topic {', '.join(map(repr, self._spec.topics))}. Make it first.")
        return lanes

    @property
    def _asking(self) -> Clerk:
        if self._clerk is None:
            raise Unavailable("The cursor is not open.")
        return self._clerk


def _pinned(stored: Mapping[Lane, Stored], fences: Mapping[Lane, Fence | None]) -> dict[Lane, int]:
    found = {}
    for lane, one in stored.items():
        fence = fences[lane]
        if fence is None or fence.pinned:
            found[lane] = one.position
    return found
