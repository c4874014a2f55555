"""The errors of this package, as one tree.

OfframpError
├── Refused              the sidecar refuses, and would refuse again: a person must change something
│   ├── NotFound         no such subscription, broker or topic; the text lists those there are
│   ├── InvalidRequest   an option or a message that the sidecar can never accept
│   ├── Incompatible     what listens at that address does not speak a version of the protocol that this client can
│   └── Forbidden        missing or wrong credentials, or a missing right
├── Unavailable          not now; a retry may help
│   └── OutOfRoom        the broker has no space for what is published
├── PartlyPublished      some messages of a call are published and others are not; has the result of each
├── AlreadySettled       a batch or a record was settled a second time
├── Drained              a batch was asked for after `drain` or SIGTERM: none will come
├── Closed               used after it was closed
├── Forked               opened before a fork and used after it, or opened where gRPC was used before the fork
└── ProtocolBroken       the sidecar broke a rule of the protocol

Consumers and workers never raise `Unavailable`: they wait for the sidecar and go on. `Drained` ends a loop, as the end
of the iteration does. `Retry`, `Reject` and the other exceptions by which a handler settles its batch are no errors;
see `offramp.outcomes`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import DecodeError
from grpc import RpcError, StatusCode

from offramp.v1 import error_pb2, publish_pb2

if TYPE_CHECKING:
    from offramp.publisher import Place


class OfframpError(Exception):
    """Its text names what is wrong, the value, and what is allowed."""

    #: why, for programs: a name of `offramp.v1.ErrorReason`, such as SUBSCRIPTION_NOT_FOUND; empty if the sidecar did
    #: not say it
    reason = ""


class Refused(OfframpError):
    pass


class NotFound(Refused):
    pass


class InvalidRequest(Refused):
    pass


class Incompatible(Refused):
    pass


class Forbidden(Refused):
    pass


class Unavailable(OfframpError):
    pass


class OutOfRoom(Unavailable):
    pass


class PartlyPublished(OfframpError):
    """Publishing all of them again duplicates those that are published; publishing the others loses nothing."""

    def __init__(self, text: str, results: "Sequence[Place | Refused | Unavailable]") -> None:
        super().__init__(text)
        #: of each message, in order: where it was published, or the error, `Refused` or `Unavailable`
        self.results = results

    @property
    def retryable(self) -> bool:
        """No message is refused: all of those that failed may succeed if they are published again."""
        return not any(isinstance(result, Refused) for result in self.results)


class AlreadySettled(OfframpError):
    pass


class Drained(OfframpError):
    pass


class Closed(OfframpError):
    pass


class Forked(OfframpError):
    pass


class ProtocolBroken(OfframpError):
    pass


_DETAILS = "grpc-status-details-bin"
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_DOMAIN = "offramp.v1"

_REFUSALS: dict[str, type[Refused]] = {
    "SUBSCRIPTION_NOT_FOUND": NotFound,
    "BROKER_NOT_FOUND": NotFound,
    "TOPIC_NOT_FOUND": NotFound,
    "LANE_NOT_FOUND": NotFound,
    "INVALID_REQUEST": InvalidRequest,
    "TOO_MANY_ENTRIES": InvalidRequest,
    "MESSAGE_TOO_LARGE": InvalidRequest,
    "RECORD_TOO_LARGE": InvalidRequest,
    "VERSION": Incompatible,
    "UNAUTHENTICATED": Forbidden,
    "FORBIDDEN": Forbidden,
}

#: of statuses without a reason, which something else than a sidecar has made
_REFUSALS_BY_CODE: dict[StatusCode, type[Refused]] = {
    StatusCode.NOT_FOUND: NotFound,
    StatusCode.INVALID_ARGUMENT: InvalidRequest,
    StatusCode.FAILED_PRECONDITION: Incompatible,
    StatusCode.UNIMPLEMENTED: Incompatible,
    StatusCode.UNAUTHENTICATED: Forbidden,
    StatusCode.PERMISSION_DENIED: Forbidden,
}


def of_message(result: publish_pb2.Published, text: str) -> Refused | Unavailable:
    """The error of a message that was not published, or may not have been."""
    known = error_pb2.ErrorReason.DESCRIPTOR.values_by_number.get(result.reason)
    reason = known.name.removeprefix("ERROR_REASON_") if known is not None and result.reason else ""
    error: Refused | Unavailable
    if result.retryable or result.status != publish_pb2.PUBLISH_STATUS_REFUSED:
        error = OutOfRoom(text) if reason == "BROKER_FULL" else Unavailable(text)
    else:
        error = _REFUSALS.get(reason, Refused)(text)
    error.reason = reason
    return error


E = TypeVar("E", bound=OfframpError)


@dataclass(frozen=True, slots=True)
class Failure:
    """The status of a failed call."""

    code: StatusCode
    text: str
    #: empty: gRPC itself or something between has made the status
    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, error: RpcError) -> "Failure":
        # Both kinds of gRPC client have these methods, but not in their common class.
        call: Any = error
        if not hasattr(call, "code"):
            return cls(StatusCode.UNKNOWN, "")
        code, text = call.code() or StatusCode.UNKNOWN, call.details() or ""
        for name, value in call.trailing_metadata() or ():
            if name == _DETAILS and (info := _error_info(value)) is not None:
                return cls(code, text, info.reason, dict(info.metadata))
        return cls(code, text)

    @property
    def retryable(self) -> bool:
        """The same call may succeed later."""
        if self.reason:
            return self.metadata.get("retryable") == "true"
        return self.code not in _REFUSALS_BY_CODE

    def refusal(self, address: str) -> Refused | None:
        """The error if no retry will help; None if one may."""
        if self.retryable:
            return None
        text = self.text or self.code.name
        kind = _REFUSALS.get(self.reason, Refused) if self.reason else _REFUSALS_BY_CODE[self.code]
        if self.code is StatusCode.UNIMPLEMENTED:
            text = f"what listens there is no Offramp sidecar, or one of another version: {text}"
        return with_reason(kind(f"{address}: {text}"), self)


def with_reason(error: E, failure: Failure) -> E:
    """The error, with the reason of the failure that it stands for."""
    error.reason = failure.reason
    return error


def _error_info(details: bytes) -> error_pb2.ErrorInfo | None:
    try:
        for detail in error_pb2.ErrorStatus.FromString(details).details:
            if detail.type_url == _ERROR_INFO:
                info = error_pb2.ErrorInfo.FromString(detail.value)
                return info if info.domain == _DOMAIN else None
    except DecodeError:
        pass
    return None
