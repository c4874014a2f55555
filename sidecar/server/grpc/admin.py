"""`AdminService`: looking at the sidecar and operating it."""

import asyncio
from collections.abc import Callable, Iterable

from offramp.v1 import admin_pb2 as pb
from sidecar.brokers.base import AtPosition, SeekTarget, SeekTo
from sidecar.brokers.connections import Connections
from sidecar.model.clock import Clock
from sidecar.model.errors import InvalidRequest, Unknown, Unmet
from sidecar.model.records import Lane
from sidecar.observability.logs import Log
from sidecar.observability.status import Status
from sidecar.server.auth.caller import EVERY, current
from sidecar.server.grpc.registry import AnySubscription, SubscriptionRegistry
from sidecar.server.grpc.rpc import Context, Handler, server_stream, unary
from sidecar.server.grpc.status_wire import to_dead_letter, to_status
from sidecar.server.grpc.targets import read_time
from sidecar.server.grpc.writer import Writer
from sidecar.settings import Right
from sidecar.subscription import dead_letters

NAME: str = pb.DESCRIPTOR.services_by_name["AdminService"].full_name

#: milliseconds between two statuses
_DEFAULT_INTERVAL, _LEAST_INTERVAL = 1_000, 100
_DEFAULT_LETTERS = 100
#: bytes of dead letters in one response
_LETTERS_BYTES = 1 << 20

log = Log("admin")


class AdminService:
    def __init__(
        self,
        directory: SubscriptionRegistry,
        brokers: Connections,
        status: Callable[[Iterable[AnySubscription]], Status],
        clock: Clock,
        unread: float,
    ) -> None:
        self._directory = directory
        self._brokers = brokers
        self._status = status
        self._clock = clock
        self._unread = unread
        self._stopped = asyncio.Event()

    def methods(self) -> dict[str, Handler]:
        return {
            "GetStatus": unary("GetStatus", pb.GetStatusRequest, self._get_status),
            "WatchStatus": server_stream("WatchStatus", pb.WatchStatusRequest, self._watch_status),
            "Pause": unary("Pause", pb.PauseRequest, self._pause),
            "Resume": unary("Resume", pb.ResumeRequest, self._resume),
            "Seek": unary("Seek", pb.SeekRequest, self._seek),
            "ListDeadLetters": server_stream("ListDeadLetters", pb.ListDeadLettersRequest, self._list_dead_letters),
            "Redrive": unary("Redrive", pb.RedriveRequest, self._redrive),
            "DeleteGroup": unary("DeleteGroup", pb.DeleteGroupRequest, self._delete_group),
        }

    def stop(self) -> None:
        """End the watches."""
        self._stopped.set()

    async def _get_status(self, request: pb.GetStatusRequest) -> bytes:
        status = self._status(self._chosen(request.subscription))
        return pb.GetStatusResponse(status=to_status(status)).SerializeToString()

    async def _watch_status(self, request: pb.WatchStatusRequest, context: Context) -> None:
        interval = request.interval_ms or _DEFAULT_INTERVAL
        if interval < _LEAST_INTERVAL:
            raise InvalidRequest(f"interval_ms: {interval} is less than {_LEAST_INTERVAL}")
        chosen = self._chosen(request.subscription)
        with Writer(context, self._unread) as writer:
            while not self._stopped.is_set():
                status = to_status(self._status(chosen))
                await writer.write(pb.WatchStatusResponse(status=status).SerializeToString())
                try:
                    async with asyncio.timeout(interval / 1_000):
                        await self._stopped.wait()
                except TimeoutError:
                    continue

    async def _pause(self, request: pb.PauseRequest) -> bytes:
        self._directory.named(request.subscription, Right.ADMIN).pause(request.reason or "paused by an operator")
        log.info("paused by an operator", subscription=request.subscription, reason=request.reason)
        return pb.PauseResponse().SerializeToString()

    async def _resume(self, request: pb.ResumeRequest) -> bytes:
        self._directory.named(request.subscription, Right.ADMIN).resume()
        log.info("resumed by an operator", subscription=request.subscription)
        return pb.ResumeResponse().SerializeToString()

    async def _seek(self, request: pb.SeekRequest) -> bytes:
        subscription = self._directory.named(request.subscription, Right.ADMIN)
        target = _read_target(request)
        if not subscription.can_seek:
            raise Unmet(f"broker {subscription.settings.broker} cannot seek")
        lanes = _chosen_lanes(subscription, request)
        sought = await subscription.seek(dict.fromkeys(lanes, target))
        for lane, position in sorted(sought.items()):
            log.info("moved by an operator", subscription=request.subscription, lane=lane, position=position)
        answer = [pb.SoughtLane(topic=lane.topic, lane=lane.number, position=to) for lane, to in sorted(sought.items())]
        return pb.SeekResponse(lanes=answer).SerializeToString()

    async def _list_dead_letters(self, request: pb.ListDeadLettersRequest, context: Context) -> None:
        settings = self._directory.named(request.subscription, Right.ADMIN).settings
        letters = await dead_letters.list_dead_letters(
            self._brokers.usable(settings.broker),
            settings,
            limit=request.limit or _DEFAULT_LETTERS,
            ids=(request.id,) if request.id else (),
            payloads=not request.without_payload,
        )
        response = pb.ListDeadLettersResponse()
        room = _LETTERS_BYTES
        with Writer(context, self._unread) as writer:
            for letter in letters:
                message = to_dead_letter(letter, without_payload=request.without_payload)
                room -= message.ByteSize()
                if room < 0 and response.dead_letters:
                    await writer.write(response.SerializeToString())
                    response.Clear()
                    room = _LETTERS_BYTES - message.ByteSize()
                response.dead_letters.append(message)
            if response.dead_letters:
                await writer.write(response.SerializeToString())

    async def _redrive(self, request: pb.RedriveRequest) -> bytes:
        settings = self._directory.leased(request.subscription, Right.ADMIN).settings
        if not request.ids and not request.all:
            raise InvalidRequest("which dead letters? Give ids, or all")
        if request.ids and request.all:
            raise InvalidRequest("give either ids or all, not both")
        redriven = await dead_letters.redrive(
            self._brokers.usable(settings.broker), settings, ids=set(request.ids), wall_ms=self._clock.wall_ms()
        )
        log.info("dead letters were sent back", subscription=request.subscription, records=len(redriven))
        return pb.RedriveResponse(redriven=len(redriven)).SerializeToString()

    async def _delete_group(self, request: pb.DeleteGroupRequest) -> bytes:
        current().require(Right.ADMIN, EVERY)
        broker = self._brokers.usable(request.broker)
        if not request.group:
            raise InvalidRequest("group must be given")
        if not broker.traits.deletes_groups:
            raise Unmet(f"broker {request.broker} has no groups that Offramp could delete; local brokers have")
        for subscription in self._directory:
            settings = subscription.settings
            if (settings.broker, settings.group_name) == (request.broker, request.group):
                raise Unmet(f"group {request.group} is in use by subscription {settings.name}")
        await broker.delete_group(request.group)
        log.info("a group was deleted", broker=request.broker, group=request.group)
        return pb.DeleteGroupResponse().SerializeToString()

    def _chosen(self, name: str) -> list[AnySubscription]:
        """The subscription of that name, or all without one."""
        if name:
            return [self._directory.named(name, Right.ADMIN)]
        current().require(Right.ADMIN, EVERY)
        return list(self._directory)


def _read_target(request: pb.SeekRequest) -> SeekTarget:
    match request.WhichOneof("to"):
        case "position":
            if request.position < 0:
                raise InvalidRequest(f"position: {request.position} is negative")
            return AtPosition(request.position)
        case "timestamp_ms":
            return read_time(request.timestamp_ms)
        case "start":
            return SeekTo.START
        case "end":
            return SeekTo.END
        case _:
            raise InvalidRequest("where to? Give position, timestamp_ms, start or end")


def _chosen_lanes(subscription: AnySubscription, request: pb.SeekRequest) -> list[Lane]:
    known = sorted(subscription.lanes())
    lanes = [
        lane
        for lane in known
        if request.topic in ("", lane.topic) and (not request.HasField("lane") or request.lane == lane.number)
    ]
    if not lanes:
        raise Unknown(f"no such lane is assigned now; there are: {', '.join(map(str, known)) or 'none'}")
    return lanes
