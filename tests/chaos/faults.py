"""The kinds of faults."""

from enum import StrEnum
from typing import NamedTuple


class FaultKind(StrEnum):
    #: kill -9; it comes back after a while
    KILL_SIDECAR = "kill -9 of a sidecar"
    #: SIGTERM; it comes back after a while
    STOP_SIDECAR = "SIGTERM of a sidecar"
    #: SIGSTOP for a while: where a group has a session timeout, for longer than that
    FREEZE_SIDECAR = "a sidecar frozen"
    #: the same within milliseconds of an assignment, and while a revoke waits; a rebalance is caused for it
    FREEZE_ASSIGNED = "a sidecar frozen at an assignment"
    FREEZE_LEAVING = "a sidecar frozen within a revoke"
    #: one more
    JOIN = "a sidecar joins"
    #: SIGTERM, for good
    LEAVE = "a sidecar leaves"
    #: kill -9; another takes its place at once
    KILL_WORKER = "kill -9 of a worker"
    STOP_WORKER = "SIGTERM of a worker"
    FREEZE_WORKER = "a worker frozen"
    #: kill -9; it comes back after a while, as does everything that follows
    KILL_BROKER = "kill -9 of the broker"
    STOP_BROKER = "SIGTERM of the broker"
    FREEZE_BROKER = "the broker frozen"
    #: every connection to the broker is reset, now
    CUT_BROKER = "connections to the broker cut"
    #: everything to and from the broker is delayed
    DELAY_BROKER = "connections to the broker slow"
    #: nothing comes through, and no connection is closed
    HOLD_BROKER = "connections to the broker silent"
    #: the same between workers and a sidecar, where they talk over TCP
    CUT_APP = "connections to the app cut"
    DELAY_APP = "connections to the app slow"
    HOLD_APP = "connections to the app silent"
    #: the disk of the embedded broker is full
    FILL_DISK = "the disk full"
    #: the wall clock of a sidecar jumps, forward or back
    JUMP_CLOCK = "a clock jumps"


class Fault(NamedTuple):
    """One of them, at a moment of a round."""

    #: seconds since the load began
    at: float
    kind: FaultKind
    #: which of those that there are then; taken modulo their number
    whom: int
    #: seconds until it is over, for those that last
    lasts: float
