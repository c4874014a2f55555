"""A seed and a number make a round: who takes part, and which faults when. Pure.

The moments of other processes are not ours: the same plan again is the same faults at the same times under the same
load, not the same history to the microsecond.
"""

import json
import random
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

from tests.chaos.faults import Fault, FaultKind
from tests.e2e.load.kinds import Kind


class BrokerKind(StrEnum):
    LOCAL = "local"
    KAFKA = "kafka"
    PULSAR = "pulsar"
    REDIS = "redis"


#: seconds of load
LOAD = 8.0
_DAY = 86_400.0
#: seconds until Kafka considers a silent member dead, in these rounds; and Pulsar one that did not answer a ping, after
#: another such time; and after which what a silent consumer of Redis has goes to others
SESSION = 3.0
#: seconds of a lease, where leases end
_LEASE = 1.5

_ANYWHERE = {
    FaultKind.KILL_SIDECAR: 6,
    FaultKind.STOP_SIDECAR: 4,
    FaultKind.FREEZE_SIDECAR: 2,
    FaultKind.KILL_WORKER: 5,
    FaultKind.STOP_WORKER: 3,
    FaultKind.FREEZE_WORKER: 3,
    FaultKind.JUMP_CLOCK: 2,
}
_APP = {FaultKind.CUT_APP: 4, FaultKind.DELAY_APP: 2, FaultKind.HOLD_APP: 2}
_FLEET = {
    FaultKind.JOIN: 4,
    FaultKind.LEAVE: 3,
    FaultKind.CUT_BROKER: 4,
    FaultKind.DELAY_BROKER: 2,
    FaultKind.HOLD_BROKER: 2,
}
#: brokers whose groups assign lanes to members and revoke them
_GROUP = {FaultKind.FREEZE_ASSIGNED: 3, FaultKind.FREEZE_LEAVING: 3}
_SERVER = {FaultKind.KILL_BROKER: 1, FaultKind.STOP_BROKER: 1, FaultKind.FREEZE_BROKER: 1}

#: the variants of each broker, and the orders that each allows
_VARIANTS: Mapping[BrokerKind, Mapping[str, tuple[str, ...]]] = {
    BrokerKind.LOCAL: {"": ("none", "key", "lane")},
    BrokerKind.KAFKA: {"consumer": ("none", "key", "lane"), "classic": ("none", "key", "lane")},
    BrokerKind.PULSAR: {
        "shared": ("none",),
        "key_shared": ("key",),
        "failover": ("none", "key", "lane"),
        "exclusive": ("none", "key", "lane"),
    },
    BrokerKind.REDIS: {"": ("none",)},
}
#: shares of one in a thousand; the rest does nothing special
_IN_ORDER = {Kind.FLAKY: 40, Kind.SLOW: 10, Kind.BAD: 10}
_ANY_ORDER = {**_IN_ORDER, Kind.LATER: 20}
#: where leases expire
_OVERDUE = {Kind.OVERDUE: 5}
#: in some rounds, few
_DEADLY = {Kind.POISON: 1, Kind.KILLER: 1}


@dataclass(frozen=True)
class Leases:
    """How long a worker may keep a batch."""

    #: 0: as long as it lives
    seconds: float = 0.0
    #: the workers ask for no more; otherwise the sidecar grants no more
    asked: bool = False


@dataclass(frozen=True)
class Plan:
    seed: int
    number: int
    broker: BrokerKind
    #: the group protocol of Kafka, the subscription type of Pulsar
    variant: str
    order: str
    lanes: int
    #: the kinds of workers of each sidecar at the start; sidecars that join take them in turn
    workers: tuple[tuple[str, ...], ...]
    #: workers and sidecars talk over TCP
    tcp: bool
    #: of kinds of records, in a thousand
    shares: Mapping[Kind, int]
    #: records a second
    pace: int
    faults: tuple[Fault, ...]
    seconds: float = LOAD
    leases: Leases = Leases()

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @property
    def summary(self) -> str:
        leases = f"leases of {self.leases.seconds:g} s" if self.leases.seconds else ""
        words = (self.broker, self.variant, f"order {self.order}", "over TCP" if self.tcp else "", leases)
        return " ".join(word for word in words if word)


def make(
    seed: int,
    number: int,
    broker: BrokerKind,
    *,
    ways: Collection[str] = ("threads", "stream", "fetch"),
    without: Collection[FaultKind] = (),
) -> Plan:
    """`ways` of getting batches are to be had here; faults that cannot be made here are `without`."""
    chance = random.Random(f"{seed} {number} {broker}")
    variant = chance.choice(tuple(_VARIANTS[broker]))
    order = chance.choice(_VARIANTS[broker][variant])
    shares = dict(_ANY_ORDER if order == "none" else _IN_ORDER)
    # A record that fails always is hard to tell from an outage where little else can be tried.
    if order != "lane" and chance.random() < 0.25:
        shares |= _DEADLY
    tcp = chance.random() < 0.4
    alone = broker is BrokerKind.LOCAL or variant == "exclusive"
    workers = tuple(_ways(chance, sorted(ways)) for _ in range(1 if alone else 2))
    faults = tuple(_faults(chance, broker, alone=alone, tcp=tcp, without=without))
    leases = Leases(_LEASE, chance.random() < 0.5) if chance.random() < 0.3 else Leases()
    if leases.seconds:
        shares |= _OVERDUE
    # A record that is parked until a time of day is a day late if the clock jumps by a day: no loss, but a long round.
    if any(fault.kind is FaultKind.JUMP_CLOCK and abs(fault.lasts) == _DAY for fault in faults):
        shares.pop(Kind.LATER, None)
    return Plan(
        seed,
        number,
        broker,
        variant,
        order,
        lanes=chance.choice((2, 4) if alone else (4, 8)),
        workers=workers,
        tcp=tcp,
        shares=shares,
        pace=chance.choice((150, 250)),
        faults=faults,
        leases=leases,
    )


def _ways(chance: random.Random, ways: list[str]) -> tuple[str, ...]:
    return tuple(chance.choice(ways) for _ in range(2))


def _faults(
    chance: random.Random, broker: BrokerKind, *, alone: bool, tcp: bool, without: Collection[FaultKind]
) -> list[Fault]:
    weights: dict[FaultKind, int] = {**_ANYWHERE, **(_APP if tcp else {})}
    if broker is BrokerKind.LOCAL:
        weights[FaultKind.FILL_DISK] = 5
    else:
        weights |= _FLEET
        if broker is BrokerKind.KAFKA:
            weights |= _GROUP
        if alone:
            del weights[FaultKind.JOIN], weights[FaultKind.LEAVE]
    weights = {kind: weight for kind, weight in weights.items() if kind not in without}
    kinds = chance.choices(tuple(weights), tuple(weights.values()), k=chance.randrange(3, 7))
    # A server restarts slowly: at most once in a round, and not in every one.
    if broker is not BrokerKind.LOCAL and chance.random() < (0.4 if broker is BrokerKind.KAFKA else 0.15):
        servers = {kind: weight for kind, weight in _SERVER.items() if kind not in without}
        kinds.append(chance.choices(tuple(servers), tuple(servers.values()))[0])
    times = sorted(chance.uniform(0.5, LOAD - 0.5) for _ in kinds)
    chance.shuffle(kinds)
    return [
        Fault(round(at, 2), kind, chance.randrange(1000), round(_lasts(chance, kind, broker), 2))
        for at, kind in zip(times, kinds, strict=True)
    ]


def _lasts(chance: random.Random, kind: FaultKind, broker: BrokerKind) -> float:
    short = chance.uniform(0.2, 2.5)
    match kind:
        case (
            FaultKind.FREEZE_SIDECAR | FaultKind.FREEZE_ASSIGNED | FaultKind.FREEZE_LEAVING | FaultKind.FREEZE_BROKER
        ) if broker is BrokerKind.KAFKA:
            # One that is considered dead, and one that is just in time.
            return chance.choice((SESSION * 0.7, SESSION * 1.5))
        case FaultKind.FREEZE_SIDECAR | FaultKind.FREEZE_BROKER if broker in (BrokerKind.PULSAR, BrokerKind.REDIS):
            return chance.choice((short, SESSION * 2.5))
        case FaultKind.FREEZE_WORKER:
            # Longer than any lease, and than any ping timeout.
            return chance.choice((short, SESSION * 1.5))
        case FaultKind.JUMP_CLOCK:
            return chance.choice((-_DAY, -5.0, 5.0, _DAY))
    return short
