"""The errors of this package, as one tree.

OfframpError
├── Refused              the sidecar refuses, and would refuse again: a person must change something
│   ├── NotFound         no such subscription, broker or topic; the text lists those there are
│   ├── InvalidRequest   an option or a message that the sidecar can never accept
│   ├── Incompatible     what listens at that address does not speak a version of the protocol that this client can
│   └── Forbidden        missing or wrong credentials, or a missing right
├── Unavailable          not now; a retry may help
│   └── OutOfRoom        the broker has no space for what is published
├── AlreadySettled       a batch or a record was settled a second time
├── Closed               used after it was closed
├── Forked               opened before a fork and used after it, or opened where gRPC was used before the fork
└── ProtocolBroken       the sidecar broke a rule of the protocol

Consumers and workers never raise `Unavailable`: they wait for the sidecar and go on. `Retry`, `Reject` and the other
exceptions by which a handler settles its batch are no errors; see `offramp.outcomes`.
"""

from grpc import RpcError, StatusCode


class OfframpError(Exception):
    """Its text names what is wrong, the value, and what is allowed."""


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


class AlreadySettled(OfframpError):
    pass


class Closed(OfframpError):
    pass


class Forked(OfframpError):
    pass


class ProtocolBroken(OfframpError):
    pass


_REFUSALS: dict[StatusCode, type[Refused]] = {
    StatusCode.NOT_FOUND: NotFound,
    StatusCode.INVALID_ARGUMENT: InvalidRequest,
    StatusCode.FAILED_PRECONDITION: Incompatible,
    StatusCode.UNIMPLEMENTED: Incompatible,
    StatusCode.UNAUTHENTICATED: Forbidden,
    StatusCode.PERMISSION_DENIED: Forbidden,
}


def refusal(code: StatusCode, details: str, address: str) -> Refused | None:
    """The error for a status that no retry will change; None for one that may pass."""
    kind = _REFUSALS.get(code)
    if kind is None:
        return None
    if code is StatusCode.UNIMPLEMENTED:
        details = f"what listens there is no Offramp sidecar, or one of another version: {details}"
    return kind(f"{address}: {details or code.name}")


def status(error: RpcError) -> tuple[StatusCode, str]:
    """Code and details of a failed call. Both kinds of gRPC client have them, but not in their common class."""
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    return code() if code else StatusCode.UNKNOWN, (details() if details else "") or ""
