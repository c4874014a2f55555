"""`LogService`: ranges instead of leases, for readers that keep their own position."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import aclosing

from offramp.v1 import log_pb2 as pb
from sidecar.brokers.base import LaneEnd, SeekTarget, SeekTo
from sidecar.brokers.connections import Connections
from sidecar.model.errors import InvalidRequest, Removed
from sidecar.model.records import Lane, Run
from sidecar.model.text import clean
from sidecar.ranges.planner import Limits
from sidecar.ranges.reader import LogReader
from sidecar.ranges.subscription import RangeSubscription
from sidecar.server.grpc.read_slots import ReadSlots
from sidecar.server.grpc.requests import read_message_bytes, read_time
from sidecar.server.grpc.rpc import Context, Handler, server_stream, unary
from sidecar.server.grpc.slow_clients import StreamWriter
from sidecar.server.subscriptions import SubscriptionRegistry
from sidecar.settings import Right

NAME: str = pb.DESCRIPTOR.services_by_name["LogService"].full_name

#: trailing metadata of ReadRange, at its end and with OUT_OF_RANGE: the first position and the end of the lane
FIRST_POSITION, END_POSITION = "offramp-first-position", "offramp-end-position"
#: ranges of a subscription that are read at a time; further ones wait
MAX_READS = 16
#: characters of a reader's name
_MAX_TEXT = 200


class LogService:
    def __init__(self, registry: SubscriptionRegistry, brokers: Connections, write_timeout: float) -> None:
        self._registry = registry
        self._brokers = brokers
        self._write_timeout = write_timeout
        #: subscriptions with mode leases can be read too, which changes nothing for them
        self._readers: dict[str, LogReader | RangeSubscription] = {
            **registry.ranged,
            **{name: LogReader(one.settings, one.broker, one.clock) for name, one in registry.leased.items()},
        }
        self._slots = {name: ReadSlots(MAX_READS) for name in self._readers}

    def methods(self) -> dict[str, Handler]:
        return {
            "Attach": unary("Attach", pb.AttachRequest, self._attach),
            "ResolveStart": unary("ResolveStart", pb.ResolveStartRequest, self._resolve_start),
            "Plan": unary("Plan", pb.PlanRequest, self._plan),
            "Locate": unary("Locate", pb.LocateRequest, self._locate),
            "ReadRange": server_stream("ReadRange", pb.ReadRangeRequest, self._read_range),
            "CommitUpTo": unary("CommitUpTo", pb.CommitUpToRequest, self._commit_up_to),
        }

    async def _attach(self, request: pb.AttachRequest) -> bytes:
        attached, committed = await self._ranged(request.subscription).attach(_to_name(request.reader))
        return pb.AttachResponse(token=attached.token, committed=_to_positions(committed)).SerializeToString()

    async def _resolve_start(self, request: pb.ResolveStartRequest) -> bytes:
        subscription = self._ranged(request.subscription)
        which = request.WhichOneof("start")
        # Committed positions win in any case; without any, the start that the subscription is configured with counts.
        target = None if which in (None, "committed") else _to_target(which, request.timestamp_ms)
        positions = await subscription.resolve_start(request.token, target)
        return pb.ResolveStartResponse(positions=_to_positions(positions)).SerializeToString()

    async def _plan(self, request: pb.PlanRequest) -> bytes:
        subscription = self._ranged(request.subscription)
        until, lanes = await subscription.plan(
            request.token,
            _read_positions("start", request.start),
            Limits(request.max_records, request.max_bytes),
            _read_positions("ceiling", request.ceiling),
        )
        ends = {lane: end.end for lane, end in lanes.items()}
        return pb.PlanResponse(until=_to_positions(until), ends=_to_positions(ends)).SerializeToString()

    async def _locate(self, request: pb.LocateRequest) -> bytes:
        reader = self._reader(request.subscription)
        which = request.WhichOneof("at")
        if which is None:
            raise InvalidRequest("at must be given: earliest, latest or timestamp_ms")
        if request.dead_letters and request.topics:
            raise InvalidRequest("give either topics or dead_letters, not both")
        target = _to_target(which, request.timestamp_ms)
        if request.dead_letters:
            positions = await reader.locate_dead_letters(target)
        else:
            positions = await reader.locate(list(request.topics), target)
        group = reader.settings.group_name
        return pb.LocateResponse(positions=_to_positions(positions), group=group).SerializeToString()

    async def _read_range(self, request: pb.ReadRangeRequest, context: Context) -> None:
        reader = self._reader(request.subscription)
        max_bytes = read_message_bytes(request.max_message_bytes)
        if not request.topic:
            raise InvalidRequest("topic must be given")
        if request.start < 0:
            raise InvalidRequest(f"start: {request.start} is negative")
        if request.until < request.start:
            raise InvalidRequest(f"until: {request.until} is before start, which is {request.start}")
        lane, run = Lane(request.topic, request.lane), Run(request.start, request.until)
        try:
            with StreamWriter(context, self._write_timeout) as writer:
                end = await _write_range(writer, self._slots[request.subscription], reader, lane, run, max_bytes)
            # A reader that planned up to `until` must be able to tell the end of its range from that of the lane.
            _set_ends(context, end.start, end.end)
        except Removed as error:
            _set_ends(context, error.start, error.end)
            raise

    async def _commit_up_to(self, request: pb.CommitUpToRequest) -> bytes:
        subscription = self._ranged(request.subscription)
        committed = await subscription.commit(request.token, _read_positions("positions", request.positions))
        return pb.CommitUpToResponse(committed=_to_positions(committed)).SerializeToString()

    def _ranged(self, name: str) -> RangeSubscription:
        subscription = self._registry.get_ranged(name)
        self._brokers.usable(subscription.settings.broker)
        return subscription

    def _reader(self, name: str) -> LogReader | RangeSubscription:
        subscription = self._registry.get(name, Right.RANGES)
        self._brokers.usable(subscription.settings.broker)
        return self._readers[name]


async def _write_range(
    writer: StreamWriter, slots: ReadSlots, reader: LogReader | RangeSubscription, lane: Lane, run: Run, max_bytes: int
) -> LaneEnd:
    """Returns the ends of the lane, once all is written. Raises what reading and writing raise."""
    write: asyncio.Task[None] | None = None
    try:
        while True:
            async with slots.one() as slot:
                end = await reader.bounds(lane, run)
                chunks = reader.read(lane, run, end, max_bytes, lambda: slot.taken_away)
                async with aclosing(chunks):  # type: ignore[type-var]
                    async for chunk in chunks:
                        write = asyncio.create_task(writer.write(b"".join(chunk.frames)))
                        run = Run(chunk.positions[-1] + 1, run.stop)
                        await slot.wait_for(write)
            if write is not None:
                await write
            if not slot.taken_away:
                return end
    finally:
        if write is not None:
            write.cancel()
            await asyncio.gather(write, return_exceptions=True)


def _set_ends(context: Context, start: int, end: int) -> None:
    context.set_trailing_metadata(((FIRST_POSITION, str(start)), (END_POSITION, str(end))))


def _to_name(text: str) -> str:
    """The text on one line and not too long: for statuses, and for what a broker stores it in."""
    return clean(text[:_MAX_TEXT]).strip()


def _to_target(which: str, timestamp_ms: int) -> SeekTarget:
    return {"earliest": SeekTo.START, "latest": SeekTo.END}.get(which) or read_time(timestamp_ms)


def _read_positions(field: str, positions: Iterable[pb.LanePosition]) -> dict[Lane, int]:
    """Raises `InvalidRequest` for negative positions and lanes that are named twice."""
    found: dict[Lane, int] = {}
    for one in positions:
        lane = Lane(one.topic, one.lane)
        if one.position < 0:
            raise InvalidRequest(f"{field}: {one.position} of {lane} is negative")
        if lane in found:
            raise InvalidRequest(f"{field}: {lane} is named twice")
        found[lane] = one.position
    return found


def _to_positions(positions: Mapping[Lane, int]) -> list[pb.LanePosition]:
    return [
        pb.LanePosition(topic=lane.topic, lane=lane.number, position=position)
        for lane, position in sorted(positions.items())
    ]
