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

from sidecar.model.records import Lane


class OfframpError(Exception):
    """Its text is for people: it names the thing, the value, and what is allowed."""


class ConfigError(OfframpError):
    pass


class StartError(OfframpError):
    pass


class BrokerError(OfframpError):
    pass


class Unavailable(BrokerError):
    pass


class OutOfRoom(Unavailable):
    pass


class Refused(BrokerError):
    pass


class TooLarge(Refused):
    pass


class NotFound(BrokerError):
    pass


class LaneGone(BrokerError):
    def __init__(self, lanes: Collection[Lane]) -> None:
        super().__init__("moved to another sidecar: " + ", ".join(str(lane) for lane in sorted(lanes)))
        self.lanes = frozenset(lanes)


class Fenced(BrokerError):
    pass


class Corrupt(BrokerError):
    pass


class ProtocolError(OfframpError):
    #: the gRPC status that the client gets
    status: ClassVar[str] = "UNKNOWN"


class InvalidRequest(ProtocolError):
    status = "INVALID_ARGUMENT"


class Unauthenticated(ProtocolError):
    status = "UNAUTHENTICATED"


class Forbidden(ProtocolError):
    status = "PERMISSION_DENIED"


class Unknown(ProtocolError):
    status = "NOT_FOUND"


class Unmet(ProtocolError):
    status = "FAILED_PRECONDITION"


class OutOfTurn(Unmet):
    pass


class Superseded(ProtocolError):
    status = "ABORTED"


class Removed(ProtocolError):
    status = "OUT_OF_RANGE"

    def __init__(self, text: str, start: int, end: int) -> None:
        super().__init__(text)
        #: the first position of the lane and its end
        self.start, self.end = start, end


class ResourceExhausted(ProtocolError):
    status = "RESOURCE_EXHAUSTED"


class Stalled(ResourceExhausted):
    pass


class Stopping(ProtocolError):
    status = "UNAVAILABLE"
