"""An app that is called over gRPC: it serves `HandlerService`."""

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
import grpc.aio

from offramp.v1 import handler_pb2, record_pb2
from sidecar.model.limits import MAX_RETRY_AFTER, kept_reason
from sidecar.model.records import Delivery, Outcome, Part
from sidecar.model.wire import encode_batch
from sidecar.push.app import App
from sidecar.push.verdict import Died, NotReached, Settled, TimedOut, Verdict
from sidecar.settings import PushSettings

_METHOD = "/offramp.v1.HandlerService/Handle"
#: HandleRequest.batch: field 1, length-delimited
_BATCH_TAG = b"\x0a"
#: seconds for a connection; within them nothing was sent
_CONNECT_TIMEOUT = 5.0
#: bytes: what gRPC servers accept by default, less what is not the batch
_MAX_BATCH_BYTES = (4 << 20) - 8192
#: milliseconds between two attempts to connect
_RECONNECT_MS = 1_000

_Code = grpc.StatusCode
#: what to do where the app does not serve the sidecar
_WRONG_ROUTE = {
    _Code.UNIMPLEMENTED: "it does not serve offramp.v1.HandlerService",
    _Code.UNAUTHENTICATED: "check push.headers",
    _Code.PERMISSION_DENIED: "check push.headers",
}
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_WITH_DELAY = (Outcome.NACK, Outcome.OVERLOADED)


class GrpcApp(App):
    protocol = "grpc"
    batch_records = 0
    max_batch_bytes = _MAX_BATCH_BYTES

    def __init__(self, subscription: str, settings: PushSettings) -> None:
        self._settings = settings
        self.address = settings.grpc.removeprefix("unix:")
        self._rest = handler_pb2.HandleRequest(subscription=subscription).SerializeToString()
        self._channel: grpc.aio.Channel | None = None
        self._handle: Any = None

    def open(self) -> None:
        options = [
            ("grpc.max_receive_message_length", int(self._settings.max_answer)),
            # What is sent twice by gRPC itself would be counted by nobody.
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS),
        ]
        self._channel = grpc.aio.insecure_channel(self._settings.grpc, options=options)
        self._handle = self._channel.unary_unary(
            _METHOD, request_serializer=None, response_deserializer=handler_pb2.HandleResponse.FromString
        )

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close(None)

    async def handle(self, delivery: Delivery, traceparent: str) -> Verdict:
        channel, settings = self._channel, self._settings
        assert channel is not None
        try:
            # First, so that what fails after it is known to have been sent.
            async with asyncio.timeout(min(_CONNECT_TIMEOUT, settings.timeout)):
                await channel.channel_ready()
        except TimeoutError:
            return NotReached("refused", f"the app cannot be reached: nobody serves gRPC at {settings.grpc}")
        pieces, _ = encode_batch(_BATCH_TAG, delivery)
        metadata = [(name.lower(), value) for name, value in settings.headers.items()]
        if traceparent:
            metadata.append(("traceparent", traceparent))
        try:
            request = b"".join((*pieces, self._rest))
            response = await self._handle(request, timeout=settings.timeout, metadata=tuple(metadata))
        except grpc.aio.AioRpcError as error:
            lost = channel.get_state() is not grpc.ChannelConnectivity.READY
            return judge_status(error.code(), error.details() or "", delivery.records, settings, lost=lost)
        return judge(response, delivery.records)


def judge(response: handler_pb2.HandleResponse, records: int) -> Verdict:
    """What a response says of its batch. Pure."""
    outcome = _OUTCOMES.get(response.outcome)
    parts = _parts(response.parts, records)
    if outcome is None or parts is None:
        reason = "the response has no outcome" if outcome is None else "the parts of the response do not fit the batch"
        return Settled("invalid", Outcome.NACK, reason, possibly_processed=True)
    delay = _delay(response.retry_after_ms) if response.HasField("retry_after_ms") and outcome in _WITH_DELAY else None
    return Settled("OK", outcome, kept_reason(response.reason), delay, parts)


def judge_status(code: grpc.StatusCode, details: str, records: int, settings: PushSettings, *, lost: bool) -> Verdict:
    """What a status says of its batch. Pure. `lost`: the connection is."""
    reason = kept_reason(f"{code.name}: {details}" if details else code.name)
    match code:
        case _Code.UNAVAILABLE | _Code.CANCELLED | _Code.UNKNOWN | _Code.INTERNAL if lost:
            return Died("cut")
        case _Code.UNAVAILABLE:
            return NotReached(code.name, f"the app cannot be reached: it answers {reason}")
        case _Code.UNIMPLEMENTED | _Code.UNAUTHENTICATED | _Code.PERMISSION_DENIED:
            return NotReached(code.name, f"the app answers {reason}: {_WRONG_ROUTE[code]}. Nothing is counted")
        case _Code.DEADLINE_EXCEEDED:
            return TimedOut("timeout", f"no answer within push.timeout ({settings.timeout:g} s)")
        case _Code.RESOURCE_EXHAUSTED:
            return Settled(code.name, Outcome.OVERLOADED, reason)
        case _Code.INVALID_ARGUMENT if records == 1:
            return Settled(code.name, Outcome.REJECT, reason)
    return Settled(code.name, Outcome.NACK, reason)


def _parts(messages: Iterable[record_pb2.Part], records: int) -> tuple[Part, ...] | None:
    """None if they break a rule."""
    parts: list[Part] = []
    after = 0
    for message in messages:
        outcome = _OUTCOMES.get(message.outcome)
        if outcome is None or not message.count or message.first < after or message.first + message.count > records:
            return None
        after = message.first + message.count
        delay = message.HasField("retry_after_ms") and outcome in _WITH_DELAY
        parts.append(
            Part(
                message.first,
                message.count,
                outcome,
                kept_reason(message.reason),
                _delay(message.retry_after_ms) if delay else None,
            )
        )
    return tuple(parts)


def _delay(milliseconds: int) -> float:
    return min(milliseconds / 1_000, MAX_RETRY_AFTER)
