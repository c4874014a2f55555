"""All errors of the sidecar, as one tree.

OfframpError
├── ConfigError              the user must change something; names the key
├── StartError               the sidecar cannot run here: a socket, port or folder is in use or unusable
├── BrokerError
│   ├── Unavailable          a retry may help
│   │   └── OutOfRoom        the broker's disk or quota is full; reading goes on
│   ├── Refused              credentials, rights or a request that can never succeed; a retry will not help
│   │   └── TooLarge         the broker will never take a message of this size
│   ├── NotFound             no such topic, lane or group
│   ├── LaneGone             the lanes moved to another sidecar; carries them
│   ├── Fenced               another reader has the right to commit by now
│   └── Corrupt              what the broker has stored cannot be read
└── ProtocolError            the client broke a rule of the protocol; carries the gRPC status
    ├── InvalidRequest       INVALID_ARGUMENT
    │   └── TooManyEntries   a request is refused before it is parsed
    ├── Unauthenticated      UNAUTHENTICATED: no token, or a wrong one
    ├── Forbidden            PERMISSION_DENIED: a right is missing; names it
    ├── Unknown              NOT_FOUND
    ├── Unmet                FAILED_PRECONDITION: something else has to change first
    │   └── OutOfTurn        a Fetch whose `seq` is not the next one
    ├── Superseded           ABORTED
    ├── Removed              OUT_OF_RANGE: the lane has no such positions; carries those it has
    ├── ResourceExhausted    RESOURCE_EXHAUSTED
    │   └── Stalled          the client does not read
    └── Stopping             UNAVAILABLE

Adapters translate library errors into BrokerErrors with `raise ... from error`; the core decides what to do.
"""

from collections.abc import Collection
from typing import ClassVar

from sidecar.model.reasons import Reason
from sidecar.model.records import Lane


class OfframpError(Exception):
    """Its text is for people: it names the thing, the value, and what is allowed. `reason` and `metadata` are for
    programs, and reach the client of a call that ends with the error."""

    reason: Reason = Reason.INTERNAL

    def __init__(self, text: str, reason: Reason | None = None, **metadata: object) -> None:
        super().__init__(text)
        if reason is not None:
            self.reason = reason
        self.metadata = metadata


class ConfigError(OfframpError):
    pass


class StartError(OfframpError):
    pass


class BrokerError(OfframpError):
    pass


class Unavailable(BrokerError):
    reason = Reason.BROKER_UNAVAILABLE


class OutOfRoom(Unavailable):
    reason = Reason.BROKER_FULL


class Refused(BrokerError):
    reason = Reason.BROKER_REFUSED


class TooLarge(Refused):
    reason = Reason.MESSAGE_TOO_LARGE


class NotFound(BrokerError):
    reason = Reason.TOPIC_NOT_FOUND


class LaneGone(BrokerError):
    reason = Reason.LANE_MOVED

    def __init__(self, lanes: Collection[Lane]) -> None:
        super().__init__("moved to another sidecar: " + ", ".join(str(lane) for lane in sorted(lanes)))
        self.lanes = frozenset(lanes)


class Fenced(BrokerError):
    reason = Reason.READER_REPLACED


class Corrupt(BrokerError):
    reason = Reason.CORRUPT


class ProtocolError(OfframpError):
    #: the gRPC status that the client gets
    status: ClassVar[str] = "UNKNOWN"


class InvalidRequest(ProtocolError):
    status = "INVALID_ARGUMENT"
    reason = Reason.INVALID_REQUEST


class TooManyEntries(InvalidRequest):
    reason = Reason.TOO_MANY_ENTRIES


class Unauthenticated(ProtocolError):
    status = "UNAUTHENTICATED"
    reason = Reason.UNAUTHENTICATED


class Forbidden(ProtocolError):
    status = "PERMISSION_DENIED"
    reason = Reason.FORBIDDEN


class Unknown(ProtocolError):
    """`reason` says what is unknown."""

    status = "NOT_FOUND"

    def __init__(self, text: str, reason: Reason, **metadata: object) -> None:
        super().__init__(text, reason, **metadata)


class Unmet(ProtocolError):
    """`reason` says what has to change."""

    status = "FAILED_PRECONDITION"

    def __init__(self, text: str, reason: Reason, **metadata: object) -> None:
        super().__init__(text, reason, **metadata)


class OutOfTurn(Unmet):
    def __init__(self, text: str) -> None:
        super().__init__(text, Reason.SEQ)


class Superseded(ProtocolError):
    status = "ABORTED"
    reason = Reason.SUPERSEDED


class Removed(ProtocolError):
    status = "OUT_OF_RANGE"
    reason = Reason.OUT_OF_RANGE

    def __init__(self, text: str, start: int, end: int) -> None:
        super().__init__(text)
        #: the first position of the lane and its end
        self.start, self.end = start, end


class ResourceExhausted(ProtocolError):
    """`reason` says which limit."""

    status = "RESOURCE_EXHAUSTED"

    def __init__(self, text: str, reason: Reason, **metadata: object) -> None:
        super().__init__(text, reason, **metadata)


class Stalled(ResourceExhausted):
    def __init__(self, text: str) -> None:
        super().__init__(text, Reason.UNREAD_STREAM, limit="listen.unread")


class Stopping(ProtocolError):
    status = "UNAVAILABLE"
    reason = Reason.STOPPING
