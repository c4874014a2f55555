"""One group's consumption of Pulsar, as the event loop sees it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sidecar.brokers.base import LaneEnd, LaneEvent, Lost, Polled, SeekTarget, Source, SourceSpec, Trouble
from sidecar.brokers.pulsar import positions
from sidecar.brokers.pulsar.discovery import Discovery
from sidecar.brokers.pulsar.lane import PulsarLane
from sidecar.brokers.pulsar.opening import Joined, Opening
from sidecar.brokers.pulsar.options import SubscriptionType
from sidecar.brokers.pulsar.resting import Resting
from sidecar.brokers.pulsar.suspicion import Suspicion
from sidecar.brokers.pulsar.turns import take_in_turn
from sidecar.brokers.pulsar.withheld import Withheld
from sidecar.model.errors import BrokerError, LaneGone, NotFound, Refused, Unavailable
from sidecar.model.records import Assigned, Chunk, Commit, Lane
from sidecar.observability.logs import Log

if TYPE_CHECKING:
    from sidecar.brokers.pulsar.broker import PulsarBroker

log = Log("pulsar")

#: seconds between looks at the connections
_LOOK = 1.0
#: seconds between looks at the ends of the lanes
_MEASURE = 5.0


class PulsarSource(Source):
    """All state is touched on the event loop; each lane receives by itself."""

    def __init__(self, broker: "PulsarBroker", spec: SourceSpec) -> None:
        options = broker.options
        self.spec = spec
        self._broker = broker
        self._kind = options.subscription_type
        self._discovery = Discovery(spec, options.namespace, broker.library, broker.admin)
        self._opening = Opening(spec, options, broker.library, broker.admin)
        self._lanes: dict[Lane, PulsarLane] = {}
        self._ends: dict[Lane, LaneEnd] = {}
        #: how far lanes had come whose consumers are gone: what lies before may come again
        self._had: dict[Lane, int] = {}
        self._events: list[LaneEvent] = []
        #: the lane that is first in turn at the next poll
        self._turn = 0
        self._wake = asyncio.Event()
        self._discovering = asyncio.Lock()
        #: lanes that were not connected at the last look
        self._were_away: set[Lane] = set()
        self._resting = Resting()
        #: troubles as they were told, by what they are about
        self._told: dict[str, str] = {}
        self._suspicion = Suspicion(self._opening.who)
        self._withheld = Withheld()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        for topic, lanes in self.spec.own_topics.items():
            await self._broker.ensure_topic(topic, lanes)
        await self._discover()
        if not self._lanes and not self._has_patterns:
            raise NotFound(f"Pulsar: there are no topics {', '.join(self.spec.topics)}")
        self._tasks = [
            asyncio.create_task(self._keep(_LOOK, self._look_at_connections)),
            asyncio.create_task(self._keep(self._broker.options.discover_every, self._look_for_lanes)),
            asyncio.create_task(self._keep(_MEASURE, self._measure)),
        ]

    async def poll(self, max_records: int, max_bytes: int, timeout: float) -> Polled:
        try:
            async with asyncio.timeout(timeout):
                while not self._events and not self._ready() and not self._failed():
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            pass
        if failed := self._failed():
            await self._mend(failed)
        # From here on nothing waits: what is taken is returned.
        events, self._events = self._events, []
        return Polled(self._take(max_records, max_bytes), events)

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        # Of lanes that began anew the core may speak of what an earlier consumer had, until it has heard of that.
        untold = {lane for event in self._events for lane in _begun_anew(event)}
        mine = {lane: self._lanes[lane] for lane in commits if lane in self._lanes and lane not in untold}
        await asyncio.gather(*(lane.ack(commits[lane.lane]) for lane in mine.values()))
        # Without a consumer there is nobody to ack: what is not acked comes again, to whoever has the lane then.
        gone = [lane for lane in commits if lane not in mine or mine[lane].failed is not None]
        if gone:
            raise LaneGone(gone)

    async def release(self, lanes: Collection[Lane]) -> None:
        """Pulsar takes lanes without asking, so that there is nothing to let go of."""

    async def pause(self, lanes: Collection[Lane]) -> None:
        for lane in lanes:
            if lane in self._lanes:
                self._lanes[lane].pause()

    async def resume(self, lanes: Collection[Lane]) -> None:
        for lane in lanes:
            if lane in self._lanes:
                self._lanes[lane].resume()
        self._wake.set()

    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        if not self._broker.traits.seeks:
            raise Refused(f"Pulsar: a lane of subscription_type {self._kind.value} is shared, and cannot be moved")
        unknown = [str(lane) for lane in lanes if lane not in self._lanes]
        if unknown:
            raise NotFound(f"Group {self.spec.group!r} has no lane {', '.join(unknown)}.")
        # One may fail at any time: then it is joined anew, and is not the lane any more that was asked for.
        asked = {lane: self._lanes[lane] for lane in lanes}
        ends: dict[Lane, int] = {}
        positions: dict[Lane, int] = {}
        for lane, target in lanes.items():
            found = self._ends[lane] = await self._broker.admin.end(asked[lane].name)
            ends[lane], positions[lane] = found.end, await self._broker.resolve(asked[lane].name, found, target)
        for lane, position in positions.items():
            if self._lanes.get(lane) is asked[lane]:
                await asked[lane].seek(position, at_end=position >= ends[lane])
            if self._lanes.get(lane) is asked[lane]:
                self._tell(Assigned(lane, position))
        gone = [lane for lane, moved in asked.items() if self._lanes.get(lane) is not moved]
        if gone:
            raise LaneGone(gone)
        return positions

    async def ends(self) -> Mapping[Lane, LaneEnd]:
        return {
            lane: replace(ends, end=max(ends.end, self._lanes[lane].held.next))
            for lane, ends in self._ends.items()
            if lane in self._lanes
        }

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        lanes, self._lanes = self._lanes, {}
        await asyncio.gather(*(lane.close() for lane in lanes.values()))
        self._broker.exit(self)

    # Taking

    def _ready(self) -> list[PulsarLane]:
        return [lane for lane in self._lanes.values() if lane.ready]

    def _take(self, max_records: int, max_bytes: int) -> list[Chunk]:
        self._turn += 1
        possibly_processed = self._kind is not SubscriptionType.EXCLUSIVE
        return take_in_turn(self._ready(), self._turn, max_records, max_bytes, possibly_processed=possibly_processed)

    # Lanes

    @property
    def _has_patterns(self) -> bool:
        return any(topic.startswith("^") for topic in self.spec.topics)

    async def _discover(self) -> None:
        """Join the lanes that are new."""
        # One at a time: a lane that was joined twice would have a consumer that nobody takes from.
        async with self._discovering:
            found = await self._discovery.lanes()
            missing = found.keys() - self._lanes.keys()
            new = [(lane, found[lane]) for lane in found if lane in missing and lane not in self._resting]
            for joined in await self._opening.join(new):
                self._assign(joined)

    def _assign(self, joined: Joined) -> None:
        self._lanes[joined.lane] = PulsarLane(
            joined.lane,
            joined.name,
            joined.consumer,
            self._broker.library,
            start=joined.start,
            acked_before=joined.acked_before,
            had_before=self._had.get(joined.lane, 0),
            exclusive=self._kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER),
            wake=self._wake.set,
        )
        if joined.ends is not None:
            self._ends[joined.lane] = joined.ends
        if joined.lane in self._had:
            self._resting.joined(joined.lane, asyncio.get_running_loop().time())
        self._tell(Assigned(joined.lane, joined.start, first=joined.first))

    def _failed(self) -> list[PulsarLane]:
        return [lane for lane in self._lanes.values() if lane.failed is not None]

    async def _mend(self, failed: list[PulsarLane]) -> None:
        """Lanes whose consumers are gone: the core hears of it, and they are joined anew, at once unless they rest."""
        for lane in failed:
            log.warning("joining a lane anew", group=self.spec.group, lane=str(lane.lane), error=lane.failed)
            del self._lanes[lane.lane]
            self._had[lane.lane] = max(self._had.get(lane.lane, 0), lane.held.next)
            self._resting.failed(lane.lane, str(lane.failed), asyncio.get_running_loop().time())
            self._tell(Lost(frozenset((lane.lane,))))
            await lane.close()
        await self._discover()

    def _note(self, topic: str, text: str) -> None:
        """Of a trouble, when it changes."""
        if text != self._told.get(topic, ""):
            self._told[topic] = text
            self._tell(Trouble(topic, text))

    def _tell(self, event: LaneEvent) -> None:
        self._events.append(event)
        self._wake.set()

    # Looking after it all

    async def _keep(self, every: float, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(every)
            try:
                await look()
            except Exception as error:
                # An answer that nobody foresaw must not end all further looks without a word.
                log.bug("a look at Pulsar failed", error, group=self.spec.group)

    async def _look_at_connections(self) -> None:
        # Twice in a row: a broker closes connections for reasons of its own, and the library mends that in a moment.
        before, self._were_away = self._were_away, {name for name, lane in self._lanes.items() if not lane.is_connected}
        away = [self._lanes[name].name for name in self._lanes if name in before & self._were_away]
        text = (
            f"Pulsar: the connection is lost for {len(away)} of {len(self._lanes)} lanes, such as {away[0]}"
            if away
            else ""
        )
        self._note("connection", text)
        now = asyncio.get_running_loop().time()
        self._note("lanes", self._resting.trouble(now))
        if self._resting.ended(now):
            await self._look_for_lanes()

    async def _look_for_lanes(self) -> None:
        text = ""
        try:
            await self._discover()
        except BrokerError as error:
            text = f"looking for new lanes failed: {error}"
        self._note("discovery", text)

    async def _measure(self) -> None:
        for lane in [*self._lanes.values()]:
            with contextlib.suppress(BrokerError):
                last = await lane.last_id()
                end = positions.end(last.ledger_id(), last.entry_id(), last.batch_index())
                found = await self._broker.admin.subscribed(lane.name, self.spec.group)
                if lane.lane in self._ends:
                    backlog = found.backlog if found else -1
                    self._ends[lane.lane] = replace(self._ends[lane.lane], end=end, backlog=backlog)
                if found and lane.failed is None:
                    why = self._suspicion.look(lane, found, end)
                    if why:
                        lane.failed = Unavailable(f"Pulsar: {why}")
                        self._wake.set()
                await self._look_at_gaps(lane)
        self._note("withheld", self._withheld.trouble(self._lanes))

    async def _look_at_gaps(self, lane: PulsarLane) -> None:
        """Mostly nothing is missing there, and the broker knows: then one ack can speak for many again."""
        acked_before = 0
        if lane.held.has_gaps:
            epoch = lane.epoch
            standing = await self._broker.admin.standing(lane.name)
            if lane.epoch != epoch:
                return
            acked_before = standing.cursors.get(self.spec.group, 0)
            lane.held.acked_before(acked_before)
        self._withheld.look(lane, acked_before)


def _begun_anew(event: LaneEvent) -> Collection[Lane]:
    match event:
        case Lost(lanes):
            return lanes
        case Assigned(lane):
            return (lane,)
    return ()
