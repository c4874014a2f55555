"""`AdminService`: the status of the sidecar, and what operators can do."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from offramp.v1 import admin_pb2 as pb
from offramp.v1 import record_pb2
from sidecar.brokers.base import AtPosition, SeekTarget, SeekTo
from sidecar.brokers.connections import Connections
from sidecar.core.failures.dead_letter_topic import DeadLetterEntry
from sidecar.model.clock import Clock
from sidecar.model.errors import InvalidRequest, Unknown, Unmet
from sidecar.model.reasons import Reason
from sidecar.model.records import Lane, Record
from sidecar.observability.logs import Log
from sidecar.observability.status import Status
from sidecar.server.auth.caller import ALL_SUBSCRIPTIONS, current, who
from sidecar.server.grpc.requests import read_time
from sidecar.server.grpc.rpc import Context, Handler, server_stream, unary
from sidecar.server.grpc.slow_clients import StreamWriter
from sidecar.server.subscriptions import AnySubscription, SubscriptionRegistry
from sidecar.settings import Right
from sidecar.subscription import dead_letters

NAME: str = pb.DESCRIPTOR.services_by_name["AdminService"].full_name

#: milliseconds between two statuses
_DEFAULT_INTERVAL, _MIN_INTERVAL = 1_000, 100
_DEFAULT_DEAD_LETTERS = 100
#: bytes of dead letters in one response
_DEAD_LETTERS_BYTES = 1 << 20

log = Log("admin")


class AdminService:
    def __init__(
        self,
        registry: SubscriptionRegistry,
        brokers: Connections,
        status: Callable[[Iterable[AnySubscription]], Status],
        clock: Clock,
        write_timeout: float,
    ) -> None:
        self._registry = registry
        self._brokers = brokers
        self._status = status
        self._clock = clock
        self._write_timeout = write_timeout
        self._stopped = asyncio.Event()

    def methods(self) -> dict[str, Handler]:
        return {
            "GetStatus": unary("GetStatus", pb.GetStatusRequest, self._get_status),
            "WatchStatus": server_stream("WatchStatus", pb.WatchStatusRequest, self._watch_status),
            "Pause": unary("Pause", pb.PauseRequest, self._pause),
            "Resume": unary("Resume", pb.ResumeRequest, self._resume),
            "Seek": unary("Seek", pb.SeekRequest, self._seek),
            "ListDeadLetters": server_stream("ListDeadLetters", pb.ListDeadLettersRequest, self._list_dead_letters),
            "Redrive": server_stream("Redrive", pb.RedriveRequest, self._redrive),
            "DeleteDeadLetters": server_stream(
                "DeleteDeadLetters", pb.DeleteDeadLettersRequest, self._delete_dead_letters
            ),
            "DeleteGroup": unary("DeleteGroup", pb.DeleteGroupRequest, self._delete_group),
        }

    def stop(self) -> None:
        """End the watches."""
        self._stopped.set()

    async def _get_status(self, request: pb.GetStatusRequest) -> bytes:
        status = self._status(self._select(request.subscription))
        return pb.GetStatusResponse(status=to_status(status)).SerializeToString()

    async def _watch_status(self, request: pb.WatchStatusRequest, context: Context) -> None:
        interval = request.interval_ms or _DEFAULT_INTERVAL
        if interval < _MIN_INTERVAL:
            raise InvalidRequest(f"interval_ms: {interval} is less than {_MIN_INTERVAL}")
        subscriptions = self._select(request.subscription)
        with StreamWriter(context, self._write_timeout) as writer:
            while not self._stopped.is_set():
                status = to_status(self._status(subscriptions))
                await writer.write(pb.WatchStatusResponse(status=status).SerializeToString())
                try:
                    async with asyncio.timeout(interval / 1_000):
                        await self._stopped.wait()
                except TimeoutError:
                    continue

    async def _pause(self, request: pb.PauseRequest) -> bytes:
        self._registry.get(request.subscription, Right.ADMIN).pause(request.reason)
        log.info("paused by an operator", caller=who(), subscription=request.subscription, reason=request.reason)
        return pb.PauseResponse().SerializeToString()

    async def _resume(self, request: pb.ResumeRequest) -> bytes:
        self._registry.get(request.subscription, Right.ADMIN).resume()
        log.info("resumed by an operator", caller=who(), subscription=request.subscription)
        return pb.ResumeResponse().SerializeToString()

    async def _seek(self, request: pb.SeekRequest) -> bytes:
        subscription = self._registry.get(request.subscription, Right.ADMIN)
        target = _read_target(request)
        if not subscription.can_seek:
            raise Unmet(f"broker {subscription.settings.broker} cannot seek", Reason.UNSUPPORTED)
        selected = _select_lanes(subscription, request)
        sought = await subscription.seek(dict.fromkeys(selected, target))
        for lane, position in sorted(sought.items()):
            log.info(
                "moved by an operator",
                caller=who(),
                subscription=request.subscription,
                lane=lane,
                position=position,
            )
        lanes = [pb.SoughtLane(topic=lane.topic, lane=lane.number, position=to) for lane, to in sorted(sought.items())]
        return pb.SeekResponse(lanes=lanes).SerializeToString()

    async def _list_dead_letters(self, request: pb.ListDeadLettersRequest, context: Context) -> None:
        settings = self._registry.get(request.subscription, Right.ADMIN).settings
        page = await dead_letters.list_dead_letters(
            self._brokers.usable(settings.broker),
            settings,
            limit=request.limit or _DEFAULT_DEAD_LETTERS,
            which=_read_filter(request.filter, (request.id,) if request.id else ()),
            page=request.page,
            payloads=not request.without_payload,
        )
        response = pb.ListDeadLettersResponse()
        room = _DEAD_LETTERS_BYTES
        with StreamWriter(context, self._write_timeout) as writer:
            for entry in page.letters:
                message = to_dead_letter(entry, without_payload=request.without_payload)
                room -= message.ByteSize()
                if room < 0 and response.dead_letters:
                    await writer.write(response.SerializeToString())
                    response.Clear()
                    room = _DEAD_LETTERS_BYTES - message.ByteSize()
                response.dead_letters.append(message)
            if response.dead_letters:
                response.next_page = page.next
                await writer.write(response.SerializeToString())

    async def _redrive(self, request: pb.RedriveRequest, context: Context) -> None:
        settings = self._registry.get_leased(request.subscription, Right.ADMIN).settings
        which = _read_which(request)
        steps = dead_letters.redrive(
            self._brokers.usable(settings.broker),
            settings,
            which=which,
            again=request.again or bool(which.ids),
            wall_ms=self._clock.wall_ms(),
        )
        redriven = 0
        try:
            with StreamWriter(context, self._write_timeout) as writer:
                async for step in steps:
                    redriven += len(step.ids)
                    response = pb.RedriveResponse(redriven=redriven, skipped=step.skipped)
                    await writer.write(response.SerializeToString())
        finally:
            _log_dead_letters("dead letters were sent back", request.subscription, redriven)

    async def _delete_dead_letters(self, request: pb.DeleteDeadLettersRequest, context: Context) -> None:
        settings = self._registry.get_leased(request.subscription, Right.ADMIN).settings
        steps = dead_letters.delete(
            self._brokers.usable(settings.broker), settings, which=_read_which(request), wall_ms=self._clock.wall_ms()
        )
        deleted = 0
        try:
            with StreamWriter(context, self._write_timeout) as writer:
                async for step in steps:
                    deleted += len(step.ids)
                    await writer.write(pb.DeleteDeadLettersResponse(deleted=deleted).SerializeToString())
        finally:
            _log_dead_letters("dead letters were deleted", request.subscription, deleted)

    async def _delete_group(self, request: pb.DeleteGroupRequest) -> bytes:
        current().require(Right.ADMIN, ALL_SUBSCRIPTIONS)
        broker = self._brokers.usable(request.broker)
        if not request.group:
            raise InvalidRequest("group must be given")
        if not broker.traits.deletes_groups:
            text = f"broker {request.broker} has no groups that Offramp could delete; local brokers have"
            raise Unmet(text, Reason.UNSUPPORTED)
        for subscription in self._registry:
            settings = subscription.settings
            if (settings.broker, settings.group_name) == (request.broker, request.group):
                text = f"group {request.group} is in use by subscription {settings.name}"
                raise Unmet(text, Reason.GROUP_IN_USE)
        await broker.delete_group(request.group)
        log.info("a group was deleted", caller=who(), broker=request.broker, group=request.group)
        return pb.DeleteGroupResponse().SerializeToString()

    def _select(self, name: str) -> list[AnySubscription]:
        """The subscription of that name, or all without one."""
        if name:
            return [self._registry.get(name, Right.ADMIN)]
        current().require(Right.ADMIN, ALL_SUBSCRIPTIONS)
        return list(self._registry)


def _read_which(request: pb.RedriveRequest | pb.DeleteDeadLettersRequest) -> dead_letters.Filter:
    """The dead letters that are meant."""
    filtered = request.HasField("filter")
    if not (request.ids or request.all or filtered):
        raise InvalidRequest("ids, all or filter must be given: which dead letters are meant")
    if request.ids and (request.all or filtered):
        raise InvalidRequest("give either ids, or all or filter, not both")
    return _read_filter(request.filter, request.ids)


def _read_filter(message: pb.DeadLetterFilter, ids: Iterable[str]) -> dead_letters.Filter:
    for name, number in (("since_ms", message.since_ms), ("until_ms", message.until_ms)):
        if number < 0:
            raise InvalidRequest(f"filter.{name}: {number} is negative; it counts milliseconds since 1970")
    return dead_letters.Filter(frozenset(ids), message.reason, message.since_ms, message.until_ms)


def _log_dead_letters(text: str, subscription: str, records: int) -> None:
    log.info(text, caller=who(), subscription=subscription, records=records)


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
            raise InvalidRequest("where to seek must be given: position, timestamp_ms, start or end")


def _select_lanes(subscription: AnySubscription, request: pb.SeekRequest) -> list[Lane]:
    known = sorted(subscription.lanes())
    lanes = [
        lane
        for lane in known
        if request.topic in ("", lane.topic) and (not request.HasField("lane") or request.lane == lane.number)
    ]
    if not lanes:
        text = f"no such lane is assigned now; there are: {', '.join(map(str, known)) or 'none'}"
        raise Unknown(text, Reason.LANE_NOT_FOUND)
    return lanes


def to_status(status: Status) -> pb.Status:
    return pb.Status(**_message_fields(status))


def _message_fields(status: Any) -> dict[str, Any]:
    """A status as the fields of its message, which mirrors it field for field with milliseconds for seconds."""
    found: dict[str, Any] = {}
    for name, is_seconds in _status_fields(status.__class__):
        value = getattr(status, name)
        if is_seconds:
            found[f"{name}_ms"] = max(0, int(value * 1_000))
        elif is_dataclass(value):
            found[name] = _message_fields(value)
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            found[name] = [_message_fields(one) for one in value]
        elif isinstance(value, StrEnum):
            # As protobuf names its values: ORDER_KEY for `order`.
            found[name] = f"{name}_{value.name}".upper()
        else:
            found[name] = value
    return found


@cache
def _status_fields(kind: type) -> list[tuple[str, bool]]:
    """The names of the fields, and whether they are seconds: all numbers of a status with a fraction are."""
    return [(one.name, one.type is float) for one in fields(kind)]


def to_dead_letter(entry: DeadLetterEntry, *, without_payload: bool) -> pb.DeadLetter:
    return pb.DeadLetter(
        id=entry.id,
        topic=entry.topic,
        lane=entry.record.lane,
        position=entry.record.position,
        reason=entry.reason,
        attempts=entry.attempts,
        worker=entry.worker,
        dead_lettered_ms=entry.dead_lettered_ms,
        record=_to_record(entry.record, without_payload=without_payload),
        redriven=entry.redriven,
    )


def _to_record(record: Record, *, without_payload: bool) -> record_pb2.Record:
    message = record_pb2.Record(
        lane=record.lane,
        position=record.position,
        timestamp_ms=record.timestamp_ms,
        ref=record.ref,
    )
    if not without_payload:
        if record.key is not None:
            message.key = record.key
        if record.value is not None:
            message.value = record.value
        message.headers.extend(record_pb2.Header(name=name, value=value) for name, value in record.headers)
    return message
