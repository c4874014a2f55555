"""The contract's Cursor on Pulsar: a durable subscription that nobody is connected to.

The exact position and the token of its reader are stored as properties of the subscription, in one step. Pulsar's own
cursor follows, entry by entry, so that what was read can be removed; at the end of a ledger it stays on the last entry,
so that this ledger stays while the reader is there (see `positions.cursor_entry`). If the cursor is not where it was
left, workers or a tool have moved it since, and its position counts, not the stored one. In a lane without messages,
however, Pulsar itself moves it to a new ledger now and then.

Pulsar cannot compare and store in one step. So the token is compared first, and a commit that is under way at the very
moment when another reader attaches may still be stored. It may make the lag look wrong until the new reader commits;
nothing is read by it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.fencing import Attached, Fence, check_token, decode, encode, newest, next_token
from sidecar.brokers.pulsar.positions import cursor_entry, next_entry, pack
from sidecar.brokers.pulsar.topics import LaneDiscovery
from sidecar.brokers.range_cursor import Cursor, GroupState
from sidecar.model.errors import Refused
from sidecar.model.records import Lane

if TYPE_CHECKING:
    from sidecar.brokers.pulsar.broker import PulsarBroker

#: properties of the subscription: the reader's token, the position, and where Pulsar's cursor was left
_FENCE, _POSITION, _CURSOR = "offramp-ranges", "offramp-position", "offramp-cursor"
#: more of them: the entry under the cursor was read; the lane was empty
_READ, _EMPTY = "offramp-read", "offramp-empty"


class _Entry(NamedTuple):
    """What Pulsar stores for the group in one lane."""

    #: None: the subscription exists only to hold the token
    position: int | None
    #: the position of Pulsar's own cursor
    cursor: int
    fence: Fence | None
    has_consumers: bool
    #: there is no message between the position and this one: there was none when the position was stored, and the
    #: cursor waits for the first that comes. None: not known
    empty_until: int | None
    #: the entry at the cursor was read
    read: bool


class PulsarCursor(Cursor):
    def __init__(self, broker: "PulsarBroker", spec: SourceSpec) -> None:
        self._admin = broker.admin
        self._group = spec.group
        self._discovery = LaneDiscovery(spec, broker.options.namespace, broker.client, broker.admin)
        #: the last attachment through this sidecar
        self._own_attachment: Attached | None = None

    async def open(self) -> None:
        await self.lanes()

    async def lanes(self) -> Mapping[Lane, LaneEnd]:
        names = await self._discovery.lanes()
        ends = await asyncio.gather(*(self._end(name) for name in names.values()))
        return dict(zip(names, ends, strict=True))

    async def fetch_state(self) -> GroupState:
        return _group_state(await self._entries())

    async def attach(self, reader: str, now_ms: int) -> Attached:
        entries = await self._entries()
        self._check_unconsumed(entries)
        state = _group_state(entries)
        before = state.attached
        attached = self._own_attachment = Attached(next_token(before.token if before else 0, now_ms), reader, now_ms)
        names = await self._discovery.lanes()
        if state.positions:
            fence = Fence(attached, pinned=True)
            await asyncio.gather(*(self._store_fence(names[lane], entries[lane], fence) for lane in entries))
        else:
            # A group without positions needs a subscription somewhere that holds the token.
            holder = names[min(names)]
            await self._admin.create_subscription(holder, self._group)
            await self._admin.set_properties(holder, self._group, {_FENCE: encode(Fence(attached, pinned=False))})
        return attached

    async def pin(self, token: int, positions: Mapping[Lane, int]) -> None:
        entries = await self._entries_for(token)
        known = _group_state(entries).positions
        await self._store(token, entries, {lane: at for lane, at in positions.items() if lane not in known})

    async def commit(self, token: int, positions: Mapping[Lane, int]) -> None:
        entries = await self._entries_for(token)
        known = _group_state(entries).positions
        await self._store(token, entries, {lane: at for lane, at in positions.items() if at > known.get(lane, -1)})

    async def move(self, positions: Mapping[Lane, int]) -> None:
        entries = await self._entries()
        self._check_unconsumed(entries)
        attached = _group_state(entries).attached
        await self._move_all(entries, positions, Fence(attached, pinned=True) if attached else None)

    async def skip_gap(self, lane: Lane, position: int) -> int:
        entry = (await self._entries()).get(lane)
        if entry is None or entry.position is None or entry.empty_until is None or position < entry.position:
            return position
        return max(position, entry.empty_until)

    async def close(self) -> None:
        """There is nothing to close."""

    async def _entries_for(self, token: int) -> dict[Lane, _Entry]:
        entries = await self._entries()
        self._check_unconsumed(entries)
        check_token(token, _group_state(entries).attached, exact=False)
        return entries

    def _check_unconsumed(self, entries: Mapping[Lane, _Entry]) -> None:
        if any(entry.has_consumers for entry in entries.values()):
            raise Refused(
                f"Pulsar: subscription {self._group} has consumers, which consume it by leases: it cannot be read by "
                "ranges at the same time. Stop them, or set another `group`"
            )

    async def _store(self, token: int, entries: Mapping[Lane, _Entry], positions: Mapping[Lane, int]) -> None:
        known = (_group_state(entries).attached, self._own_attachment)
        attached = next((one for one in known if one is not None and one.token == token), Attached(token, "", 0))
        await self._move_all(entries, positions, Fence(attached, pinned=True))

    async def _move_all(
        self, entries: Mapping[Lane, _Entry], positions: Mapping[Lane, int], fence: Fence | None
    ) -> None:
        """The lane that only holds the token goes last: until then none of the others counts, so the first positions of
        a group appear all at once. If that lane gets no position, the group begins at its start."""
        names = await self._discovery.lanes()
        holders = [lane for lane, entry in entries.items() if entry.position is None]
        others = {lane: position for lane, position in positions.items() if lane not in holders}
        await asyncio.gather(*(self._move(names[lane], position, fence) for lane, position in others.items()))
        for lane in holders:
            if lane in positions:
                await self._move(names[lane], positions[lane], fence)
            elif positions:
                await self._store_fence(names[lane], entries[lane], fence)

    async def _move(self, name: str, position: int, fence: Fence | None) -> None:
        await self._admin.create_subscription(name, self._group)
        state = await self._admin.topic_state(name)
        end = await self._admin.lane_end(name)
        entry = cursor_entry(position, state.ledgers)
        read = False
        if entry is not None:
            await self._admin.move_cursor(name, self._group, entry.ledger, entry.entry, after=False)
            # An entry of which only a part was read counts as backlog, unless that part is the end of the lane.
            read = position >= min(end.end, pack(entry.ledger, entry.entry + 1))
        await self._store_properties(name, position, fence, read=read, empty=entry is None)

    async def _store_fence(self, name: str, entry: _Entry, fence: Fence | None) -> None:
        """Stores another fence, and leaves the rest as it is."""
        position = entry.cursor if entry.position is None else entry.position
        await self._store_properties(name, position, fence, read=entry.read, empty=entry.empty_until is not None)

    async def _store_properties(
        self, name: str, position: int, fence: Fence | None, *, read: bool, empty: bool
    ) -> None:
        state = await self._admin.topic_state(name)
        left_at = next_entry(state.cursors[self._group], state.ledgers)
        properties = {_POSITION: str(position), _CURSOR: str(left_at)}
        if fence is not None:
            properties[_FENCE] = encode(fence)
        properties |= dict.fromkeys([_READ] * read + [_EMPTY] * empty, "yes")
        await self._admin.set_properties(name, self._group, properties)

    async def _entries(self) -> dict[Lane, _Entry]:
        names = await self._discovery.lanes()
        found = await asyncio.gather(*(self._entry(name) for name in names.values()))
        entries = {lane: entry for lane, entry in zip(names, found, strict=True) if entry is not None}
        known = _group_state(entries)
        if known.positions:
            # Pulsar keeps only what some subscription waits for, so the group joins a new lane as soon as it is seen.
            for lane in names.keys() - entries.keys():
                await self._admin.create_subscription(names[lane], self._group)
                made = await self._entry(names[lane])
                if made is not None:
                    fence = Fence(known.attached, pinned=True) if known.attached else None
                    await self._store_fence(names[lane], made, fence)
                    entries[lane] = made
        return entries

    async def _entry(self, name: str) -> _Entry | None:
        subscribed = await self._admin.subscription_stats(name, self._group)
        state = await self._admin.topic_state(name)
        if subscribed is None or self._group not in state.cursors:
            return None
        cursor = next_entry(state.cursors[self._group], state.ledgers)
        properties = subscribed.properties
        fence = decode(properties.get(_FENCE, ""))
        stored = properties.get(_POSITION, "")
        is_unmoved = properties.get(_CURSOR) == str(cursor)
        was_empty = _EMPTY in properties or (state.is_empty and not stored)
        empty_until = state.start if was_empty and cursor == state.start else None
        position: int | None = cursor
        if fence is not None and not fence.pinned:
            position = None
        elif (is_unmoved or empty_until is not None) and stored.isdecimal():
            position = int(stored)
        return _Entry(
            position, cursor, fence, subscribed.has_consumers, empty_until, is_unmoved and _READ in properties
        )

    async def _end(self, name: str) -> LaneEnd:
        end = await self._admin.lane_end(name)
        found = await self._admin.subscription_stats(name, self._group)
        if found is None:
            return replace(end, backlog=-1)
        return replace(end, backlog=max(0, found.backlog - (_READ in found.properties)))


def _group_state(entries: Mapping[Lane, _Entry]) -> GroupState:
    positions = {lane: entry.position for lane, entry in entries.items() if entry.position is not None}
    if len(positions) < len(entries):
        # The first positions of the group are being stored, or were when a sidecar was killed.
        positions = {}
    return GroupState(positions, newest(entry.fence for entry in entries.values()))
