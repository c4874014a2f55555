"""Which promises a broker gives up with a trait that it does not have, and why. `docs/semantics.md` shows the same."""

from dataclasses import dataclass

from sidecar.brokers.base import Traits


@dataclass(frozen=True, slots=True)
class GivenUp:
    #: number of the promise
    promise: int
    #: what is given up of it, and why
    reason: str


GIVEN_UP = {
    "keeps_acks_beyond": GivenUp(
        9, "The broker keeps one position for each lane: acks beyond it are forgotten by a restart, and replayed."
    ),
    "rebalances": GivenUp(8, "A lane never moves to another sidecar, so there is no rebalance to be safe in."),
    "lanes_are_exclusive": GivenUp(
        4, "Sidecars share a lane, so that order `key` and `lane` hold within one sidecar only."
    ),
    "seeks": GivenUp(8, "A lane cannot be moved, so there is no earlier epoch to commit for."),
    "reads_ranges": GivenUp(1, "Dead letters can be written and consumed, but not listed."),
}


def why_not(traits: Traits, needed: str) -> str:
    """Why a broker with these traits is let off a test that needs one; empty if it is not."""
    given_up = GIVEN_UP[needed]
    return "" if getattr(traits, needed) else f"promise {given_up.promise}: {given_up.reason}"
