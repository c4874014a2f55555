"""Publishing to a broker through the sidecar: the blocking publisher, and what both publishers share."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import NamedTuple, Self, Unpack

import grpc

from offramp import errors
from offramp._internal import fork_safety
from offramp._internal.event_headers import CONTENT_TYPE, EVENT_TIME, format_time
from offramp.channel import Access, AccessOptions
from offramp.v1 import publish_pb2 as pb
from offramp.v1 import record_pb2

PUBLISH = "/offramp.v1.PublishService/Publish"
GET_LIMITS = "/offramp.v1.PublishService/GetLimits"
#: bytes and messages that any sidecar accepts in one request
_SMALL_BYTES, _SMALL_MESSAGES = 64 << 10, 1_000

#: text is encoded as UTF-8
Data = bytes | str | None
Headers = Mapping[str, Data] | Iterable[tuple[str, Data]]


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish. None is no value (a tombstone) or no key, which is not the same as an empty one."""

    value: Data
    key: Data = None
    headers: Headers = ()
    #: None: by the hash of the key, or round-robin without a key
    lane: int | None = None
    #: milliseconds since 1970; 0: now
    timestamp_ms: int = 0
    #: seconds until the broker may deliver it; `Refused` where it cannot wait (Pulsar with shared subscriptions can)
    deliver_after: float = 0.0
    #: of several messages with this id the topic gets the first; `Refused` where the broker cannot tell (the embedded
    #: broker can)
    deduplication_id: str = ""
    #: when what it tells of happened; the header `ce_time`, as in CloudEvents. Without a zone it is UTC
    event_time: datetime | None = None
    #: how the value is encoded, such as application/json; the header `content-type`
    content_type: str = ""


class Place(NamedTuple):
    """The lane and position of a published message."""

    lane: int
    #: -1 if the broker does not report it
    position: int


class Publisher:
    """Publishes to the broker of a `subscription`, or to a `broker` by its name. Any number of threads may use it.

    Every call waits for the sidecar if it is not there, and returns when the broker has the messages durably. It raises
    `Refused` for what can never work, and `Unavailable` if it did not work within `timeout` seconds: then some messages
    may have been published, and publishing again may duplicate them. Open it after a fork. For the other options see
    `offramp.channel`.
    """

    def __init__(
        self,
        *,
        subscription: str | None = None,
        broker: str | None = None,
        timeout: float = 30.0,
        **access: Unpack[AccessOptions],
    ) -> None:
        self._target = PublishTarget(subscription, broker)
        self._timeout = timeout
        self._access = Access(**access)
        self._pid = os.getpid()
        self._channel = self._access.open()
        self._limits = RequestLimits(self._access.target)
        self._publish = self._channel.unary_unary(
            PUBLISH, pb.PublishRequest.SerializeToString, pb.PublishResponse.FromString
        )
        self._get_limits = self._channel.unary_unary(
            GET_LIMITS, pb.GetLimitsRequest.SerializeToString, pb.GetLimitsResponse.FromString
        )

    def publish(
        self, topic: str, value: Data, *, key: Data = None, headers: Headers = (), lane: int | None = None
    ) -> Place:
        """Publish one message. Returns its lane and position."""
        return self.publish_many(topic, [Message(value, key, headers, lane)])[0]

    def publish_many(self, topic: str, messages: Iterable[Message]) -> list[Place]:
        """Publish messages to one topic in one call. Returns their lanes and positions, in their order. Raises
        `PartlyPublished` if only some are published."""
        fork_safety.check_opened_here(self._pid)
        request = self._target.request(topic, messages)
        ends = time.monotonic() + self._timeout
        try:
            if self._limits.needed(request):
                self._limits.known = self._get_limits(
                    self._target.limits_request(), timeout=self._timeout, wait_for_ready=True
                )
            self._limits.check(request)
            left = max(ends - time.monotonic(), 0.001)
            response = self._publish(request, timeout=left, wait_for_ready=True)
        except grpc.RpcError as error:
            raise self._limits.failure(error) from error
        return self._limits.places(response)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# Shared with `offramp.aio.Publisher`


@dataclass(frozen=True, slots=True)
class PublishTarget:
    """The broker of a subscription, or a broker by its name. Raises `ValueError`."""

    subscription: str | None
    broker: str | None

    def __post_init__(self) -> None:
        if bool(self.subscription) == bool(self.broker):
            raise ValueError("either subscription (to publish to its broker) or broker must be given, and not both")

    def limits_request(self) -> pb.GetLimitsRequest:
        return pb.GetLimitsRequest(subscription=self.subscription, broker=self.broker)

    def request(self, topic: str, messages: Iterable[Message]) -> pb.PublishRequest:
        return pb.PublishRequest(
            subscription=self.subscription, broker=self.broker, topic=topic, messages=map(_encode, messages)
        )


class RequestLimits:
    """What the sidecar accepts in one request, once a large one was to be sent."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.known: pb.GetLimitsResponse | None = None

    def needed(self, request: pb.PublishRequest) -> bool:
        """Whether the sidecar must be asked before this request is checked."""
        small = len(request.messages) <= _SMALL_MESSAGES and request.ByteSize() <= _SMALL_BYTES
        return self.known is None and not small

    def check(self, request: pb.PublishRequest) -> None:
        """Raises `InvalidRequest` for one that the sidecar would refuse."""
        if self.known is None:
            return
        for what, size, limit in (
            ("bytes (listen.max_request_bytes)", request.ByteSize(), self.known.max_request_bytes),
            ("messages", len(request.messages), self.known.max_messages),
        ):
            if size > limit:
                raise errors.InvalidRequest(
                    f"{self._address}: the request has {size:,} {what}, and the sidecar accepts {limit:,}: publish "
                    "fewer or smaller messages at a time"
                )

    def places(self, response: pb.PublishResponse) -> list[Place]:
        """Raises `PartlyPublished`, or the error of a single message."""
        results = [self._result(one) for one in response.published]
        places = [result for result in results if isinstance(result, Place)]
        if len(places) == len(results):
            return places
        failed = [result for result in results if not isinstance(result, Place)]
        if len(results) == 1:
            raise failed[0]
        text = f"{len(failed):,} of {len(results):,} messages are not published, or may not be; the first: {failed[0]}"
        raise errors.PartlyPublished(text, results)

    def _result(self, one: pb.Published) -> "Place | errors.Refused | errors.Unavailable":
        if one.status == pb.PUBLISH_STATUS_PUBLISHED:
            return Place(one.lane, one.position)
        return errors.of_message(one, f"{self._address}: {one.detail or 'the message is not published'}")

    def failure(self, error: grpc.RpcError) -> errors.OfframpError:
        """The error for a failed call. It may be another sidecar by the next one, with other limits."""
        self.known = None
        failure = errors.Failure.of(error)
        refusal = failure.refusal(self._address)
        if refusal is not None:
            return refusal
        text = f"{self._address}: {failure.text or failure.code.name}"
        if failure.reason == "BROKER_FULL":
            return errors.with_reason(errors.OutOfRoom(text), failure)
        return errors.with_reason(errors.Unavailable(f"{text}; some of it may have been published"), failure)


def _encode(message: Message) -> pb.Message:
    headers = [*(message.headers.items() if isinstance(message.headers, Mapping) else message.headers)]
    if message.event_time is not None:
        headers.append((EVENT_TIME, format_time(message.event_time)))
    if message.content_type:
        headers.append((CONTENT_TYPE, message.content_type))
    return pb.Message(
        key=_bytes(message.key),
        value=_bytes(message.value),
        headers=[record_pb2.Header(name=name, value=_bytes(value)) for name, value in headers],
        lane=message.lane,
        timestamp_ms=message.timestamp_ms,
        deliver_after_ms=round(message.deliver_after * 1_000),
        deduplication_id=message.deduplication_id,
    )


def _bytes(data: Data) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
