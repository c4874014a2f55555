"""The twelve promises, and which of them a broker cannot keep and why. `docs/semantics.md` shows the same table."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sidecar.brokers.base import Traits

#: by their number in docs/semantics.md: name, and module of `tests.promises.suite`
PROMISES = {
    1: ("nothing is lost", "nothing_is_lost"),
    2: ("a nack replays", "nack_replays"),
    3: ("truthful results", "settle_is_truthful"),
    4: ("order as chosen", "order_as_chosen"),
    5: ("one slow record holds up nobody", "slow_record_holds_up_nobody"),
    6: ("workers are not bound to lanes", "workers_not_bound_to_lanes"),
    7: ("bounded memory", "memory_is_bounded"),
    8: ("rebalance is safe", "rebalance_is_safe"),
    9: ("a restart forgets little", "restart_forgets_little"),
    10: ("orderly drain", "drain_is_orderly"),
    11: ("poison is isolated", "poison_is_isolated"),
    12: ("an outage is not poison", "outage_is_not_poison"),
}


@dataclass(frozen=True, slots=True)
class Exemption:
    promises: tuple[int, ...]
    #: what is not kept of them, and why
    reason: str


_SHARED = "Sidecars share every lane, and none moves: what a stopped sidecar held is delivered again at the others."
_SOUGHT = "A lane that is shared cannot be moved by one of its sidecars."
_UNORDERED = "Sidecars share a lane: order `key` and `lane` are refused by `offramp lint`."

#: by the trait that a broker lacks
EXEMPTIONS = {
    "keeps_acks_beyond": Exemption(
        (9,),
        "The broker keeps one position for each lane: a restart forgets acks beyond it, and replays those records.",
    ),
    "acks_survive_broker_kill": Exemption(
        (9,), "A broker that is killed may deliver again what it had accepted as acked shortly before."
    ),
    "rebalances": Exemption(
        (8,),
        "A lane never moves to another sidecar. The rules of the core are still tested, on a broker in memory whose "
        "lanes move, and in the simulation.",
    ),
    "lanes_are_exclusive": Exemption(
        (4,), "Sidecars share a lane, so that order `key` and `lane` hold within one sidecar only."
    ),
    "seeks": Exemption((8,), "A lane cannot be moved, so that there is no earlier epoch to commit for."),
    "lists_records": Exemption((1,), "Dead letters are written and can be consumed, but not listed."),
    "tells_first_deliveries": Exemption(
        (2,),
        "The broker does not tell what another sidecar held before, so `possibly_processed` is set for every record.",
    ),
    # Nothing is given up: one window from the start is flagged, however the earlier process stopped.
    "keeps_reach": Exemption((), "The broker does not store how far an earlier process may have delivered."),
    "finds_left_topics": Exemption((), "The broker does not tell which topics a group has consumed before."),
    # Nothing is given up: the window is measured in records and bytes.
    "positions_count_records": Exemption((), "A distance of positions says nothing about the records in between."),
}
#: reasons that differ by broker
REASONS_BY_BROKER = {
    ("pulsar failover", "rebalances"): (
        "Pulsar moves a lane to another sidecar without telling the first: what the first held is delivered again at "
        "the second, flagged, and its late acks still count."
    ),
    ("pulsar shared", "rebalances"): _SHARED,
    ("redis", "rebalances"): _SHARED,
    ("redis", "seeks"): _SOUGHT,
    ("redis", "lanes_are_exclusive"): _UNORDERED,
    ("pulsar key_shared", "rebalances"): _SHARED,
    ("pulsar shared", "seeks"): _SOUGHT,
    ("pulsar key_shared", "seeks"): _SOUGHT,
    ("pulsar shared", "lanes_are_exclusive"): _UNORDERED,
    ("nats", "rebalances"): _SHARED,
    ("nats", "seeks"): _SOUGHT,
    ("nats", "lanes_are_exclusive"): _UNORDERED,
    ("pulsar key_shared", "lanes_are_exclusive"): (
        "Sidecars share a lane: order `lane` is refused by `offramp lint`. Order `key` is kept across sidecars."
    ),
}


def exemption_reason(traits: Traits, needed: str) -> str:
    """Why a broker with these traits skips a test that needs one; empty if it does not."""
    return "" if getattr(traits, needed) else EXEMPTIONS[needed].reason


def table(brokers: Mapping[str, Traits]) -> str:
    """Promises by broker, with the reasons as footnotes, as docs/semantics.md shows them."""
    reasons: list[str] = []

    def cell(promise: int, broker: str, traits: Traits) -> str:
        missing = [
            replace(exemption, reason=REASONS_BY_BROKER.get((broker, trait), exemption.reason))
            for trait, exemption in EXEMPTIONS.items()
            if not getattr(traits, trait)
        ]
        notes = [exemption.reason for exemption in missing if promise in exemption.promises]
        reasons.extend(reason for reason in notes if reason not in reasons)
        return "– " + " ".join(_NOTES[reasons.index(reason)] for reason in notes) if notes else "✓"

    rows = [f"| promise | {' | '.join(brokers)} |", "|---" * (len(brokers) + 1) + "|"]
    for number, (name, _) in PROMISES.items():
        cells = [cell(number, broker, traits) for broker, traits in brokers.items()]
        rows.append(f"| {number} {name} | {' | '.join(cells)} |")
    return "\n".join([*rows, *(f"\n{_NOTES[place]} {reason}" for place, reason in enumerate(reasons))])


_NOTES = "¹²³⁴⁵⁶⁷⁸⁹"
