"""Why a call or a settlement is refused, for programs."""

from enum import IntEnum


class Reason(IntEnum):
    """Numbers and names as in `offramp.v1.ErrorReason`, which says what each means."""

    SUBSCRIPTION_NOT_FOUND = 1
    SESSION_NOT_FOUND = 2
    BROKER_NOT_FOUND = 3
    TOPIC_NOT_FOUND = 4
    LANE_NOT_FOUND = 5
    SERVICE_NOT_FOUND = 6

    INVALID_REQUEST = 10
    TOO_MANY_ENTRIES = 11
    MESSAGE_TOO_LARGE = 12
    RECORD_TOO_LARGE = 13
    UNKNOWN_OUTCOME = 14
    INVALID_PARTS = 15

    VERSION = 20
    SEQ = 21
    MODE = 22
    UNSUPPORTED = 23
    GROUP_IN_USE = 24
    BROKER_REFUSED = 25
    TOKEN = 26

    UNAUTHENTICATED = 30
    FORBIDDEN = 31
    REVOKED = 32

    STOPPING = 40
    BROKER_UNAVAILABLE = 41
    BROKER_FULL = 42
    TOO_MANY_SESSIONS = 43
    UNREAD_RESPONSES = 44
    UNREAD_STREAM = 45

    SUPERSEDED = 50
    READER_REPLACED = 51
    LANE_MOVED = 52
    OUT_OF_RANGE = 53

    CORRUPT = 60
    INTERNAL = 61

    @property
    def retryable(self) -> bool:
        """The same call may succeed later."""
        return self in _RETRYABLE


_RETRYABLE = frozenset(
    {
        Reason.REVOKED,
        Reason.STOPPING,
        Reason.BROKER_UNAVAILABLE,
        Reason.BROKER_FULL,
        Reason.TOO_MANY_SESSIONS,
        Reason.UNREAD_RESPONSES,
        Reason.UNREAD_STREAM,
        Reason.LANE_MOVED,
        # The worker that met the bug may not meet it again.
        Reason.INTERNAL,
    }
)
