"""The twelve promises, and which of them a broker gives up and why. `docs/semantics.md` shows the same table."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sidecar.brokers.base import Traits

#: the numbers are those of docs/semantics.md; the file is where the tests are
PROMISES = {
    1: ("nothing is lost", "nothing_is_lost"),
    2: ("a nack replays", "a_nack_replays"),
    3: ("truthful answers", "settles"),
    4: ("order as chosen", "order"),
    5: ("one slow record holds up nobody", "slow_records"),
    6: ("workers are not bound to lanes", "workers"),
    7: ("bounded memory", "bounds"),
    8: ("rebalance is safe", "rebalance"),
    9: ("a restart forgets little", "restarts"),
    10: ("orderly drain", "drains"),
    11: ("poison is isolated", "poison"),
    12: ("an outage is not poison", "outage"),
}


@dataclass(frozen=True, slots=True)
class GivenUp:
    promises: tuple[int, ...]
    #: what is given up of them, and why
    reason: str


_SHARED = (
    "Sidecars share every lane, and none moves: what a sidecar had in hand that is gone comes again at the others."
)
_SOUGHT = "A lane that is shared cannot be moved by one of its sidecars."

#: by the trait that a broker would need
GIVEN_UP = {
    "keeps_acks_beyond": GivenUp(
        (9,),
        "The broker keeps one position for each lane: a restart forgets acks beyond it, and replays those records.",
    ),
    "rebalances": GivenUp(
        (8,),
        "A lane never moves to another sidecar. The rules of the core are tested all the same, on a broker in memory "
        "whose lanes move, and in the simulation.",
    ),
    "lanes_are_exclusive": GivenUp(
        (4,), "Sidecars share a lane, so that order `key` and `lane` hold within one sidecar only."
    ),
    "seeks": GivenUp((8,), "A lane cannot be moved, so that there is no earlier epoch to commit for."),
    "reads_ranges": GivenUp((1,), "Dead letters are written and can be consumed, but not listed."),
    "tells_first_deliveries": GivenUp(
        (2,),
        "The broker does not tell what another sidecar had in hand before, so that `possibly_processed` is set for "
        "every record.",
    ),
    # Nothing is given up: the window is measured in records and bytes.
    "positions_count_records": GivenUp((), "A distance of positions says nothing about the records in between."),
}
#: what to say of a broker instead
OTHER_REASONS = {
    ("pulsar failover", "rebalances"): (
        "Pulsar moves a lane to another sidecar without telling the first: what that had in hand comes again at the "
        "second, flagged, and its late acks still count."
    ),
    ("pulsar shared", "rebalances"): _SHARED,
    ("pulsar key_shared", "rebalances"): _SHARED,
    ("pulsar shared", "seeks"): _SOUGHT,
    ("pulsar key_shared", "seeks"): _SOUGHT,
    ("pulsar shared", "lanes_are_exclusive"): (
        "Sidecars share a lane: order `key` and `lane` are refused by `offramp lint`."
    ),
    ("pulsar key_shared", "lanes_are_exclusive"): (
        "Sidecars share a lane: order `lane` is refused by `offramp lint`. Order `key` is kept across sidecars."
    ),
}
#: by the broker that keeps nothing when it stops; to its suite, the process is what a server is to others
NOT_DURABLE = {"memory": GivenUp((1, 9), "It forgets everything when its process ends. It is for tests.")}


def why_not(traits: Traits, needed: str) -> str:
    """Why a broker with these traits is let off a test that needs one; empty if it is not."""
    return "" if getattr(traits, needed) else GIVEN_UP[needed].reason


def table(brokers: Mapping[str, Traits]) -> str:
    """Promise by broker, with the reasons as footnotes, as docs/semantics.md shows it."""
    reasons: list[str] = []

    def cell(promise: int, broker: str, traits: Traits) -> str:
        missing = [
            replace(given_up, reason=OTHER_REASONS.get((broker, trait), given_up.reason))
            for trait, given_up in GIVEN_UP.items()
            if not getattr(traits, trait)
        ]
        if broker in NOT_DURABLE:
            missing.append(NOT_DURABLE[broker])
        notes = [given_up.reason for given_up in missing if promise in given_up.promises]
        reasons.extend(reason for reason in notes if reason not in reasons)
        return "– " + " ".join(_NOTES[reasons.index(reason)] for reason in notes) if notes else "✓"

    rows = [f"| promise | {' | '.join(brokers)} |", "|---" * (len(brokers) + 1) + "|"]
    for number, (name, _) in PROMISES.items():
        cells = [cell(number, broker, traits) for broker, traits in brokers.items()]
        rows.append(f"| {number} {name} | {' | '.join(cells)} |")
    return "\n".join([*rows, *(f"\n{_NOTES[place]} {reason}" for place, reason in enumerate(reasons))])


_NOTES = "¹²³⁴⁵⁶⁷⁸⁹"
