"""A group of Pulsar that is read by ranges: a durable subscription that nobody is connected to.

Its exact position and the token of its reader are stored as properties of the subscription, in one step. Pulsar's own
cursor follows, entry by entry, so that what was read can be removed; it rests on the last entry of a ledger that was
read to its end, so that this ledger stays while the reader is there (see `ledgers.resting_place`). Where the cursor is
not where it was left, workers or a tool have moved it since, and it counts; but in a lane without messages, Pulsar
itself moves it on to a new ledger now and then.

Pulsar cannot compare and store in one step. So the token is compared first, and a commit that is under way in the very
moment in which another reader attaches may still be stored. It may mislead whoever looks at the lag until the new
reader commits; nothing is read by it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.cursor import Cursor, GroupState
from sidecar.brokers.fencing import Attached, Fence, check_token, decode, encode, newest, next_token
from sidecar.brokers.pulsar.discovery import Discovery
from sidecar.brokers.pulsar.ledgers import next_entry, resting_place
from sidecar.brokers.pulsar.positions import pack
from sidecar.model.errors import Refused
from sidecar.model.records import Lane

if TYPE_CHECKING:
    from sidecar.brokers.pulsar.broker import PulsarBroker

#: properties of the subscription: who may commit, the position, and where Pulsar's cursor was left
_FENCE, _POSITION, _CURSOR = "offramp-ranges", "offramp-position", "offramp-cursor"
#: and whether the entry that it was left on was read, and whether the lane was empty
_READ, _EMPTY = "offramp-read", "offramp-empty"


class _Entry(NamedTuple):
    """What Pulsar has for a lane of the group."""

    #: None: it is there to carry the token alone
    position: int | None
    #: where Pulsar's own cursor is
    cursor: int
    fence: Fence | None
    has_consumers: bool
    #: everything from the position to the first message is known to be bare: there was none when the position was
    #: stored, and the cursor waits for the first that comes
    bare_until: int | None
    #: the entry at the cursor was read
    read: bool


class PulsarCursor(Cursor):
    def __init__(self, broker: "PulsarBroker", spec: SourceSpec) -> None:
        self._admin = broker.admin
        self._group = spec.group
        self._discovery = Discovery(spec, broker.options.namespace, broker.library, broker.admin)
        #: who attached here last
        self._mine: Attached | None = None

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
        standing = _group_state(entries)
        before = standing.attached
        attached = self._mine = Attached(next_token(before.token if before else 0, now_ms), reader, now_ms)
        names = await self._discovery.lanes()
        if standing.positions:
            fence = Fence(attached, pinned=True)
            await asyncio.gather(*(self._describe_again(names[lane], entries[lane], fence) for lane in entries))
        else:
            # A group that has no position yet has to carry the token somewhere.
            carrier = names[min(names)]
            await self._admin.subscribe(carrier, self._group)
            await self._admin.describe(carrier, self._group, {_FENCE: encode(Fence(attached, pinned=False))})
        return attached

    async def pin(self, token: int, positions: Mapping[Lane, int]) -> None:
        entries = await self._checked(token)
        known = _group_state(entries).positions
        await self._store(token, entries, {lane: at for lane, at in positions.items() if lane not in known})

    async def commit(self, token: int, positions: Mapping[Lane, int]) -> None:
        entries = await self._checked(token)
        known = _group_state(entries).positions
        await self._store(token, entries, {lane: at for lane, at in positions.items() if at > known.get(lane, -1)})

    async def move(self, positions: Mapping[Lane, int]) -> None:
        entries = await self._entries()
        self._check_unconsumed(entries)
        attached = _group_state(entries).attached
        await self._move_all(entries, positions, Fence(attached, pinned=True) if attached else None)

    async def skip_gap(self, lane: Lane, position: int) -> int:
        entry = (await self._entries()).get(lane)
        if entry is None or entry.position is None or entry.bare_until is None or position < entry.position:
            return position
        return max(position, entry.bare_until)

    async def close(self) -> None:
        """There is nothing to close."""

    async def _checked(self, token: int) -> dict[Lane, _Entry]:
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
        known = (_group_state(entries).attached, self._mine)
        attached = next((one for one in known if one is not None and one.token == token), Attached(token, "", 0))
        await self._move_all(entries, positions, Fence(attached, pinned=True))

    async def _move_all(
        self, entries: Mapping[Lane, _Entry], positions: Mapping[Lane, int], fence: Fence | None
    ) -> None:
        """The lane that carries the token alone goes last: until then none of the others counts, so that a group's
        first positions come all at once. If it is not among them, it begins where it was made: at its start."""
        names = await self._discovery.lanes()
        carriers = [lane for lane, entry in entries.items() if entry.position is None]
        first = {lane: position for lane, position in positions.items() if lane not in carriers}
        await asyncio.gather(*(self._move(names[lane], position, fence) for lane, position in first.items()))
        for lane in carriers:
            if lane in positions:
                await self._move(names[lane], positions[lane], fence)
            elif positions:
                await self._describe_again(names[lane], entries[lane], fence)

    async def _move(self, name: str, position: int, fence: Fence | None) -> None:
        await self._admin.subscribe(name, self._group)
        standing = await self._admin.standing(name)
        end = await self._admin.end(name)
        rest = resting_place(position, standing.ledgers)
        read = False
        if rest is not None:
            await self._admin.move(name, self._group, rest.ledger, rest.entry, after=False)
            # A position within an entry leaves it to be counted, unless it is the end of the lane.
            read = position >= min(end.end, pack(rest.ledger, rest.entry + 1))
        await self._describe(name, position, fence, read=read, empty=rest is None)

    async def _describe_again(self, name: str, entry: _Entry, fence: Fence | None) -> None:
        """As it is, but for the fence."""
        position = entry.cursor if entry.position is None else entry.position
        await self._describe(name, position, fence, read=entry.read, empty=entry.bare_until is not None)

    async def _describe(self, name: str, position: int, fence: Fence | None, *, read: bool, empty: bool) -> None:
        standing = await self._admin.standing(name)
        left_at = next_entry(standing.cursors[self._group], standing.ledgers)
        properties = {_POSITION: str(position), _CURSOR: str(left_at)}
        if fence is not None:
            properties[_FENCE] = encode(fence)
        properties |= dict.fromkeys([_READ] * read + [_EMPTY] * empty, "yes")
        await self._admin.describe(name, self._group, properties)

    async def _entries(self) -> dict[Lane, _Entry]:
        names = await self._discovery.lanes()
        found = await asyncio.gather(*(self._entry(name) for name in names.values()))
        entries = {lane: entry for lane, entry in zip(names, found, strict=True) if entry is not None}
        known = _group_state(entries)
        if known.positions:
            # Pulsar keeps only what somebody waits for, so a lane that came later is the group's as soon as it is seen.
            for lane in names.keys() - entries.keys():
                await self._admin.subscribe(names[lane], self._group)
                made = await self._entry(names[lane])
                if made is not None:
                    fence = Fence(known.attached, pinned=True) if known.attached else None
                    await self._describe_again(names[lane], made, fence)
                    entries[lane] = made
        return entries

    async def _entry(self, name: str) -> _Entry | None:
        subscribed = await self._admin.subscribed(name, self._group)
        standing = await self._admin.standing(name)
        if subscribed is None or self._group not in standing.cursors:
            return None
        cursor = next_entry(standing.cursors[self._group], standing.ledgers)
        properties = subscribed.properties
        fence = decode(properties.get(_FENCE, ""))
        stored = properties.get(_POSITION, "")
        is_left = properties.get(_CURSOR) == str(cursor)
        was_empty = _EMPTY in properties or (standing.is_empty and not stored)
        bare_until = standing.start if was_empty and cursor == standing.start else None
        position: int | None = cursor
        if fence is not None and not fence.pinned:
            position = None
        elif (is_left or bare_until is not None) and stored.isdecimal():
            position = int(stored)
        return _Entry(position, cursor, fence, subscribed.has_consumers, bare_until, is_left and _READ in properties)

    async def _end(self, name: str) -> LaneEnd:
        end = await self._admin.end(name)
        found = await self._admin.subscribed(name, self._group)
        if found is None:
            return replace(end, backlog=-1)
        return replace(end, backlog=max(0, found.backlog - (_READ in found.properties)))


def _group_state(entries: Mapping[Lane, _Entry]) -> GroupState:
    positions = {lane: entry.position for lane, entry in entries.items() if entry.position is not None}
    if len(positions) < len(entries):
        # The first positions of the group are being stored, or were when somebody died.
        positions = {}
    return GroupState(positions, newest(entry.fence for entry in entries.values()))
