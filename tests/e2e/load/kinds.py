"""What records ask of the worker that gets them."""

from enum import StrEnum


class Kind(StrEnum):
    OK = "ok"
    #: takes a while
    SLOW = "slow"
    #: takes longer than a sidecar that stops in a hurry can wait
    STUCK = "stuck"
    #: is kept for longer than a lease lasts, the first time, where leases end
    OVERDUE = "overdue"
    #: fails the first time
    FLAKY = "flaky"
    #: asks to come again after a wait that is long enough to be parked
    LATER = "later"
    #: is rejected
    BAD = "bad"
    #: fails its whole batch, always
    POISON = "poison"
    #: kills its worker, always
    KILLER = "killer"


#: these end as dead letters, and no other does
DEADLY = {Kind.BAD: "REJECTED", Kind.POISON: "poison", Kind.KILLER: "WORKER_DIED"}


def make(kind: Kind, number: int) -> bytes:
    return f"{kind}:{number}".encode()


def kind_of(value: bytes | None) -> Kind:
    return Kind((value or b"").partition(b":")[0].decode())
