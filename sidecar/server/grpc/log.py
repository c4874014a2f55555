"""`LogService`: ranges instead of leases."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import aclosing

from offramp.v1 import log_pb2 as pb
from sidecar.brokers.base import SeekTarget, SeekTo
from sidecar.brokers.connections import Connections
from sidecar.model.errors import InvalidRequest, Removed
from sidecar.model.records import Lane, Run
from sidecar.ranges.planner import Limits
from sidecar.ranges.reader import LogReader
from sidecar.ranges.subscription import RangeSubscription
from sidecar.server.grpc.clients import read_message_bytes
from sidecar.server.grpc.registry import SubscriptionRegistry
from sidecar.server.grpc.rpc import Context, Handler, server_stream, unary
from sidecar.server.grpc.targets import read_time
from sidecar.server.grpc.writer import Writer
from sidecar.settings import Right

NAME: str = pb.DESCRIPTOR.services_by_name["LogService"].full_name

#: trailing metadata of ReadRange, in the end and with OUT_OF_RANGE: the positions of the lane
FIRST_POSITION, END_POSITION = "offramp-first-position", "offramp-end-position"
#: ranges that are read at a time; more wait. Each may hold some megabytes of a broker's library
MOST_READS = 16
#: characters of a reader's name
_MOST_TEXT = 200


class LogService:
    def __init__(self, directory: SubscriptionRegistry, brokers: Connections, unread: float) -> None:
        self._directory = directory
        self._brokers = brokers
        self._unread = unread
        self._reads = asyncio.Semaphore(MOST_READS)

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
        # Committed is what there is anyway; where there is nothing, it is as the subscription says.
        target = None if which in (None, "committed") else _to_target(which, request.timestamp_ms)
        positions = await subscription.resolve_start(request.token, target)
        return pb.ResolveStartResponse(positions=_to_positions(positions)).SerializeToString()

    async def _plan(self, request: pb.PlanRequest) -> bytes:
        subscription = self._ranged(request.subscription)
        until, lanes = await subscription.plan(
            _read_positions("start", request.start),
            Limits(request.max_records, request.max_bytes),
            _read_positions("ceiling", request.ceiling),
        )
        ends = {lane: end.end for lane, end in lanes.items()}
        return pb.PlanResponse(until=_to_positions(until), ends=_to_positions(ends)).SerializeToString()

    async def _locate(self, request: pb.LocateRequest) -> bytes:
        reading = self._reading(request.subscription)
        which = request.WhichOneof("at")
        if which is None:
            raise InvalidRequest("where? Give earliest, latest or timestamp_ms")
        if request.dead_letters and request.topics:
            raise InvalidRequest("give either topics or dead_letters, not both")
        target = _to_target(which, request.timestamp_ms)
        if request.dead_letters:
            positions = await reading.locate_dead_letters(target)
        else:
            positions = await reading.locate(list(request.topics), target)
        group = reading.settings.group_name
        return pb.LocateResponse(positions=_to_positions(positions), group=group).SerializeToString()

    async def _read_range(self, request: pb.ReadRangeRequest, context: Context) -> None:
        reading = self._reading(request.subscription)
        max_bytes = read_message_bytes(request.max_message_bytes)
        if not request.topic:
            raise InvalidRequest("topic must be given")
        if request.start < 0:
            raise InvalidRequest(f"start: {request.start} is negative")
        if request.until < request.start:
            raise InvalidRequest(f"until: {request.until} is before start, which is {request.start}")
        lane, run = Lane(request.topic, request.lane), Run(request.start, request.until)
        try:
            with Writer(context, self._unread) as writer:
                async with self._reads:
                    end = await reading.bounds(lane, run)
                    async with aclosing(reading.read(lane, run, end, max_bytes)) as pieces:  # type: ignore[type-var]
                        async for frames in pieces:
                            await writer.write(b"".join(frames))
            # A reader that planned up to `until` must be able to tell the end of its range from that of the lane.
            _tell_ends(context, end.start, end.end)
        except Removed as error:
            _tell_ends(context, error.start, error.end)
            raise

    async def _commit_up_to(self, request: pb.CommitUpToRequest) -> bytes:
        subscription = self._ranged(request.subscription)
        committed = await subscription.commit(request.token, _read_positions("positions", request.positions))
        return pb.CommitUpToResponse(committed=_to_positions(committed)).SerializeToString()

    def _ranged(self, name: str) -> RangeSubscription:
        subscription = self._directory.ranged(name)
        self._brokers.usable(subscription.settings.broker)
        return subscription

    def _reading(self, name: str) -> LogReader | RangeSubscription:
        """For what changes nothing, and so is open to both modes."""
        subscription = self._directory.named(name, Right.RANGES)
        broker = self._brokers.usable(subscription.settings.broker)
        if isinstance(subscription, RangeSubscription):
            return subscription
        return LogReader(subscription.settings, broker, subscription.clock)


def _tell_ends(context: Context, start: int, end: int) -> None:
    context.set_trailing_metadata(((FIRST_POSITION, str(start)), (END_POSITION, str(end))))


def _to_name(text: str) -> str:
    """Fit for one line of a status, and for whatever a broker keeps it in."""
    return "".join(one if one.isprintable() else " " for one in text[:_MOST_TEXT]).strip()


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
