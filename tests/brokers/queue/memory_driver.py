"""A queue broker in memory, and its driver: keeps the driver protocol, with every freedom that the protocol gives."""

import asyncio
import heapq
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from sidecar.brokers.queue.driver import Depth, Driver, HandlesLost, Limits, Received, Receiver
from sidecar.brokers.queue.naming import count_lanes, queue_name
from sidecar.model.errors import NotFound, Unavailable
from sidecar.model.records import Lane, Message, Start

#: seconds that nothing may take as long as
NEVER = 3600.0


class Handle(NamedTuple):
    """Good for one delivery by one receiver."""

    receiver: int
    delivery: int


@dataclass(frozen=True, slots=True)
class Nature:
    """What kind of broker it is."""

    #: messages have numbers, and `publish` tells them
    numbered: bool = False
    #: each group gets everything; otherwise all share
    independent: bool = False
    #: seconds for which a message is held without being renewed; inf: for as long as the receiver lives
    lease: float = inf
    limits: Limits = Limits()
    longest_delay: float = 0.0
    longest_return_delay: float = 0.0
    #: handles are void with their receiver, and all of it is given back at once
    channels: bool = True
    most_records: int = 500
    #: the broker tells how often a message was delivered
    counts: bool = True


@dataclass(slots=True, eq=False)
class Stored:
    number: int
    message: Message
    timestamp_ms: int
    not_before: float


@dataclass(slots=True, eq=False)
class Held:
    stored: Stored
    receiver: "MemoryReceiver"
    since: float
    until: float


class Share:
    """What a group, or all of them, have of a queue."""

    def __init__(self) -> None:
        #: numbers of messages that wait, a heap
        self.waiting: list[int] = []
        self.messages: dict[int, Stored] = {}
        #: by number: deliveries so far
        self.deliveries: dict[int, int] = {}
        self.held: dict[Handle, Held] = {}
        #: messages that the broker dropped, because they were delivered too often
        self.dropped: list[Stored] = []

    def put(self, stored: Stored) -> None:
        self.messages[stored.number] = stored
        heapq.heappush(self.waiting, stored.number)

    def put_back(self, handle: Handle, now: float, delay: float = 0.0) -> None:
        held = self.held.pop(handle)
        held.stored.not_before = now + delay
        heapq.heappush(self.waiting, held.stored.number)

    def settle(self, handle: Handle) -> None:
        del self.messages[self.held.pop(handle).stored.number]


class Queue:
    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.log: list[Stored] = []
        self.shares: dict[str, Share] = {}


@dataclass(slots=True)
class Faults:
    """What a test lets go wrong."""

    #: the next so many acks fail, after they were applied or before
    acks_lost: int = 0
    acks_refused: int = 0
    #: while it is set, every call fails
    away: bool = False
    #: renewing does nothing and fails
    renewals_fail: bool = False
    #: chances of each, for each message or call
    duplicate: float = 0.0
    shuffle: float = 0.0
    wrong_count: float = 0.0
    #: most turns of the event loop that a call takes
    slow: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(1))


class Server:
    """The broker itself. Outlives every driver."""

    def __init__(self, nature: Nature | None = None) -> None:
        self.nature = nature or Nature()
        self.faults = Faults()
        self.queues: dict[str, Queue] = {}
        self.receivers: list[MemoryReceiver] = []
        #: set when something arrives or is given back
        self.changed: list[asyncio.Event] = []
        #: handles that were acked by another receiver than the one that gave them out
        self.misused: list[Handle] = []
        #: calls by name
        self.calls: dict[str, int] = {}
        self.ids = itertools.count(1)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def queue(self, name: str) -> Queue:
        if name not in self.queues:
            raise NotFound(f"There is no queue {name!r}.")
        return self.queues[name]

    def make(self, name: str) -> Queue:
        queue = self.queues.setdefault(name, Queue())
        if not self.nature.independent:
            queue.shares.setdefault("", Share())
        return queue

    def share(self, name: str, group: str) -> Share:
        return self.queue(name).shares[group if self.nature.independent else ""]

    def look(self) -> None:
        for event in self.changed:
            event.set()

    def cut(self, which: Callable[["MemoryReceiver"], bool] = lambda _: True) -> None:
        """Connections are lost: all that their receivers held goes back, if it is bound to them."""
        for receiver in [*self.receivers]:
            if which(receiver):
                receiver.cut()
        self.look()

    def return_expired(self, share: Share) -> None:
        now = self.now()
        for handle, held in [*share.held.items()]:
            if held.until <= now:
                share.put_back(handle, now)
        for receiver in [*self.receivers]:
            if any(
                held.receiver is receiver and now - held.since > self.nature.limits.hold for held in share.held.values()
            ):
                receiver.cut()

    async def call(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        for _ in range(self.faults.rng.randint(0, self.faults.slow) if self.faults.slow else 0):
            await asyncio.sleep(0)
        if self.faults.away:
            raise Unavailable("the broker is away")

    def held(self) -> list[Held]:
        """All that is held of all queues."""
        return [
            held for queue in self.queues.values() for share in queue.shares.values() for held in share.held.values()
        ]


class MemoryReceiver(Receiver[Handle]):
    def __init__(self, server: Server, share: Share, *, first: bool) -> None:
        nature = server.nature
        self.renew_every = None if nature.lease == inf else nature.lease / 3
        self.limits = nature.limits
        self.first = first
        self.troubles: dict[str, str] = {}
        self.lost = 0
        self.id = next(server.ids)
        self.void = False
        self.closed = False
        self._server = server
        self._share = share
        self._changed = asyncio.Event()
        self._paused = False
        self._receiving = False
        server.receivers.append(self)
        server.changed.append(self._changed)

    def cut(self) -> None:
        if self._server.nature.channels:
            self._return_all()
            self.void = True
            self._changed.set()

    async def receive(self, records: int, size: int, timeout: float) -> Sequence[Received[Handle]]:
        assert not self._receiving, "two calls of receive"
        assert 0 < records <= self._server.nature.most_records
        self._receiving = True
        self._paused = False
        try:
            return await self._receive(records, size, timeout)
        finally:
            self._receiving = False

    async def _receive(self, records: int, size: int, timeout: float) -> Sequence[Received[Handle]]:
        await self._server.call("receive")
        ends = self._server.now() + timeout
        while True:
            self._check()
            self._changed.clear()
            if found := self._take(records, size):
                return found
            left = min([ends, *self._next_times()]) - self._server.now()
            if self._paused or ends <= self._server.now():
                return ()
            try:
                async with asyncio.timeout(max(0.0, left)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _next_times(self) -> Iterable[float]:
        """When something comes back by itself."""
        now = self._server.now()
        share = self._share
        times = (share.messages[number].not_before for number in share.waiting)
        return [at for at in (*times, *(held.until for held in share.held.values())) if at > now]

    def _take(self, records: int, size: int) -> list[Received[Handle]]:
        server, share, rng = self._server, self._share, self._server.faults.rng
        server.return_expired(share)
        if self.void:
            return []
        now = server.now()
        ready: list[int] = []
        skipped: list[int] = []
        total = 0
        while share.waiting and len(ready) < records:
            number = heapq.heappop(share.waiting)
            stored = share.messages.get(number)
            if stored is None:
                continue
            if stored.not_before > now:
                skipped.append(number)
                continue
            total += len(stored.message.value or b"")
            if total > size and ready:
                skipped.append(number)
                break
            ready.append(number)
        for number in skipped:
            heapq.heappush(share.waiting, number)
        if rng.random() < server.faults.shuffle:
            rng.shuffle(ready)
        found = [self._deliver(share.messages[number], now) for number in ready]
        received = [one for one in found if one is not None]
        again = [one for one in received if rng.random() < server.faults.duplicate]
        # A broker may deliver what is held already, once more.
        received += [self._again(one, now) for one in again[: records - len(received)]]
        return received

    def _deliver(self, stored: Stored, now: float) -> Received[Handle] | None:
        share, faults, nature = self._share, self._server.faults, self._server.nature
        before = share.deliveries.get(stored.number, 0)
        if nature.limits.deliveries and before >= nature.limits.deliveries:
            share.dropped.append(share.messages.pop(stored.number))
            return None
        share.deliveries[stored.number] = before + 1
        handle = Handle(self.id, next(self._server.ids))
        share.held[handle] = Held(stored, self, now, now + nature.lease)
        told = before if nature.counts else 0
        if told and faults.rng.random() < faults.wrong_count:
            told = faults.rng.choice([0, 1, 7])
        message = stored.message
        number = stored.number if nature.numbered else -1
        ref = b"m%d" % stored.number
        return Received(
            handle, message.key, message.value, message.headers, stored.timestamp_ms, ref, number, told, before > 0
        )

    def _again(self, received: Received[Handle], now: float) -> Received[Handle]:
        held = self._share.held[received.handle]
        handle = Handle(self.id, next(self._server.ids))
        # The first handle is dead from now on.
        del self._share.held[received.handle]
        self._share.held[handle] = Held(held.stored, self, now, held.until)
        return received._replace(handle=handle, possibly_processed=True)

    async def pause(self) -> None:
        self._paused = True
        self._changed.set()

    async def ack(self, handles: Sequence[Handle], cumulative: int) -> Sequence[int]:
        await self._server.call("ack")
        self._check()
        faults = self._server.faults
        self._server.misused += [handle for handle in handles if handle.receiver != self.id]
        if faults.acks_refused:
            faults.acks_refused -= 1
            raise Unavailable("the ack was not taken")
        not_ours: list[int] = []
        for index, handle in enumerate(handles):
            if handle in self._share.held:
                self._share.settle(handle)
            else:
                not_ours.append(index)
        if cumulative and self._server.nature.channels:
            # As a broker with cumulative acks does it: with everything that was delivered before.
            last = handles[cumulative - 1].delivery
            for handle in [*self._share.held]:
                if handle.receiver == self.id and handle.delivery <= last:
                    self._share.settle(handle)
        if faults.acks_lost:
            faults.acks_lost -= 1
            raise Unavailable("no answer to the ack")
        return not_ours

    async def give_back(self, handles: Sequence[Handle], delay: float) -> None:
        await self._server.call("give_back")
        self._check()
        assert delay <= self._server.nature.longest_return_delay
        for handle in handles:
            if handle in self._share.held:
                self._share.put_back(handle, self._server.now(), delay)
        self._server.look()

    async def renew(self, handles: Sequence[Handle]) -> Sequence[Handle | None]:
        await self._server.call("renew")
        self._check()
        if self._server.faults.renewals_fail:
            raise Unavailable("no answer to the renewal")
        self._server.return_expired(self._share)
        now = self._server.now()
        found: list[Handle | None] = []
        for handle in handles:
            held = self._share.held.pop(handle, None)
            if held is None:
                found.append(None)
                continue
            # Handles change with each renewal, as they do at some brokers.
            new = Handle(self.id, next(self._server.ids))
            held.until = now + self._server.nature.lease
            self._share.held[new] = held
            found.append(new)
        return found

    async def close(self) -> None:
        self.closed = True
        if self in self._server.receivers:
            self._server.receivers.remove(self)
            self._server.changed.remove(self._changed)
        if self._server.nature.channels or self._server.nature.lease == inf:
            # Without leases, whoever comes next finds what this one has left.
            self._return_all()
            self._server.look()

    def _return_all(self) -> None:
        for handle in [handle for handle, held in self._share.held.items() if held.receiver is self]:
            self._share.put_back(handle, self._server.now())

    def _check(self) -> None:
        if self.void:
            raise HandlesLost("the connection was lost")


class MemoryDriver(Driver[Handle]):
    def __init__(self, server: Server) -> None:
        nature = server.nature
        self.server = server
        self.facts = {"durability": "none"}
        self.numbered = nature.numbered
        self.most_records = nature.most_records
        self.longest_delay = nature.longest_delay
        self.longest_return_delay = nature.longest_return_delay

    async def open(self) -> None:
        """There is nothing to open."""

    async def lanes(self, topic: str) -> int:
        async def exists(lane: Lane) -> bool:
            return queue_name(lane) in self.server.queues

        return await count_lanes(topic, exists)

    async def ensure(self, topic: str, lanes: int) -> None:
        await self.server.call("ensure")
        if topic not in self.server.queues:
            for number in range(lanes):
                self.server.make(queue_name(Lane(topic, number)))

    async def receiver(self, lane: Lane, group: str, start: Start) -> MemoryReceiver:
        await self.server.call("receiver")
        name = queue_name(lane)
        queue = self.server.queue(name)
        known = not self.server.nature.independent or group in queue.shares
        if not known:
            share = queue.shares[group] = Share()
            for stored in queue.log if start is Start.EARLIEST else ():
                share.put(stored)
        return MemoryReceiver(self.server, self.server.share(name, group), first=not known)

    async def publish(self, lane: Lane, messages: Sequence[Message]) -> Sequence[int]:
        await self.server.call("publish")
        queue = self.server.queue(queue_name(lane))
        numbers: list[int] = []
        for message in messages:
            assert message.deliver_after <= self.longest_delay
            number = next(queue.numbers)
            timestamp = message.timestamp_ms if message.timestamp_ms > 0 else time.time_ns() // 1_000_000
            if self.server.nature.independent:
                queue.log.append(Stored(number, message, timestamp, 0.0))
            for share in queue.shares.values():
                share.put(Stored(number, message, timestamp, self.server.now() + message.deliver_after))
            numbers.append(number if self.numbered else -1)
        self.server.look()
        return numbers

    async def depth(self, lane: Lane, group: str) -> Depth:
        await self.server.call("depth")
        queue = self.server.queue(queue_name(lane))
        share = queue.shares.get(group if self.server.nature.independent else "")
        if share is None:
            return Depth(waiting=len(queue.log))
        return Depth(waiting=len(share.waiting), held=len(share.held))

    async def browse(self, lane: Lane, group: str, size: int) -> AsyncIterator[Sequence[Received[Handle]]]:
        queue = self.server.queue(queue_name(lane))
        stored = queue.log if self.server.nature.independent else [*queue.shares[""].messages.values()]
        for one in stored:
            message = one.message
            yield [
                Received(
                    Handle(0, 0), message.key, message.value, message.headers, one.timestamp_ms, b"m%d" % one.number
                )
            ]

    async def close(self) -> None:
        """There is nothing to close."""
