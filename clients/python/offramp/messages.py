"""From what is published to the request that travels, and from its answer back. Used by both publishers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import grpc

from offramp import errors
from offramp.v1 import publish_pb2 as pb
from offramp.v1 import record_pb2

METHOD = "/offramp.v1.PublishService/Publish"

#: what gRPC says in the sidecar's name, which does not get to see such a request
_TOO_LARGE = "SERVER: Received message larger than max"

#: text is encoded as UTF-8
Data = bytes | str | None
Headers = Mapping[str, Data] | Iterable[tuple[str, Data]]


@dataclass(frozen=True, slots=True)
class Message:
    """What is published. None is no value (a tombstone) or no key, which is not the same as an empty one."""

    value: Data
    key: Data = None
    headers: Headers = ()
    #: None: by the hash of the key, or in turn without a key
    lane: int | None = None
    #: milliseconds since 1970; 0: now
    timestamp_ms: int = 0


class Place(NamedTuple):
    """Where a message went."""

    lane: int
    #: -1 where the broker does not tell
    position: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages go: the broker of a subscription, or a broker by its name. Raises `ValueError`."""

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


def publish_error(error: grpc.RpcError, to: str) -> errors.OfframpError:
    """The error for a call that failed."""
    code, details = status(error)
    refusal = errors.refusal(code, details, to)
    if refusal is not None:
        return refusal
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        return errors.InvalidRequest(
            f"{to}: one request holds more than the sidecar's listen.max_request_bytes allows: publish fewer or "
            f"smaller messages at a time ({details})"
        )
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return errors.OutOfRoom(f"{to}: {details}")
    return errors.Unavailable(f"{to}: {details or code.name}; some of it may have been published")


def status(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """Errors of both kinds of gRPC client have these, though their common class does not say so."""
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    return code() if code else grpc.StatusCode.UNKNOWN, (details() if details else "") or ""


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
