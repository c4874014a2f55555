"""Publishing to a broker through the sidecar: the blocking publisher, and what both publishers share."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self, Unpack

import grpc

from offramp import errors
from offramp._internal import fork_safety
from offramp.channel import Access, AccessOptions
from offramp.v1 import publish_pb2 as pb
from offramp.v1 import record_pb2

METHOD = "/offramp.v1.PublishService/Publish"

#: gRPC's own text for a request that the sidecar never gets to see
_TOO_LARGE = "SERVER: Received message larger than max"

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
        self._publish = self._channel.unary_unary(
            METHOD, pb.PublishRequest.SerializeToString, pb.PublishResponse.FromString
        )

    def publish(
        self, topic: str, value: Data, *, key: Data = None, headers: Headers = (), lane: int | None = None
    ) -> Place:
        """Publish one message. Returns its lane and position."""
        return self.publish_many(topic, [Message(value, key, headers, lane)])[0]

    def publish_many(self, topic: str, messages: Iterable[Message]) -> list[Place]:
        """Publish messages to one topic in one call. Returns their lanes and positions, in their order."""
        fork_safety.check_opened_here(self._pid)
        try:
            response = self._publish(self._target.request(topic, messages), timeout=self._timeout, wait_for_ready=True)
        except grpc.RpcError as error:
            raise publish_error(error, self._access.target) from error
        return read_places(response)

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

    def request(self, topic: str, messages: Iterable[Message]) -> pb.PublishRequest:
        return pb.PublishRequest(
            subscription=self.subscription, broker=self.broker, topic=topic, messages=map(_encode, messages)
        )


def read_places(response: pb.PublishResponse) -> list[Place]:
    return [Place(one.lane, one.position) for one in response.published]


def publish_error(error: grpc.RpcError, address: str) -> errors.OfframpError:
    """The error for a failed call."""
    code, details = errors.status(error)
    refusal = errors.refusal(code, details, address)
    if refusal is not None:
        return refusal
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        return errors.InvalidRequest(
            f"{address}: one request holds more than the sidecar's listen.max_request_bytes allows: publish fewer or "
            f"smaller messages at a time ({details})"
        )
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return errors.OutOfRoom(f"{address}: {details}")
    return errors.Unavailable(f"{address}: {details or code.name}; some of it may have been published")


def _encode(message: Message) -> pb.Message:
    headers = message.headers.items() if isinstance(message.headers, Mapping) else message.headers
    return pb.Message(
        key=_bytes(message.key),
        value=_bytes(message.value),
        headers=[record_pb2.Header(name=name, value=_bytes(value)) for name, value in headers],
        lane=message.lane,
        timestamp_ms=message.timestamp_ms,
    )


def _bytes(data: Data) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
