"""Everything that can go wrong, as one tree.

OfframpError
├── Refused              the sidecar said no and would say no again: a person must change something
│   ├── NotFound         no such subscription, broker or topic; the text lists those there are
│   ├── InvalidRequest   an option or a message that the sidecar can never take
│   ├── Incompatible     nobody at that address speaks a version of Offramp's protocol that this client can work with
│   └── Forbidden        the sidecar does not let this client in
├── Unavailable          not now; a retry may help
│   └── OutOfRoom        the broker has no room for what is published
├── AlreadySettled       a batch or a record was settled a second time
├── Closed               used after it was closed
├── Forked               opened before a fork and used after it, or opened where gRPC was used before the fork
└── ProtocolBroken       the sidecar broke a rule of the protocol

Consumers and workers never raise `Unavailable`: they wait for the sidecar and go on. What a handler raises to say
how a batch is to be settled (`Retry`, `Reject`, ...) is no error; see `offramp.verdicts`.
"""

from grpc import StatusCode


class OfframpError(Exception):
    """Its text is for people: what, which value, what is allowed."""


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
    """The error for a status that no retry will change, or None for one that may pass."""
    kind = _REFUSALS.get(code)
    if kind is None:
        return None
    if code is StatusCode.UNIMPLEMENTED:
        details = f"what listens there is no Offramp sidecar, or one of another version: {details}"
    return kind(f"{address}: {details or code.name}")
