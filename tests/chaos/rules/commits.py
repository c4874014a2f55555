"""What the group was told to be done: nothing too early, and everything in the end."""

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.history import RETRY, TOPIC, Claim, Stay
from tests.chaos.rules.letters import may_be_given_up
from tests.chaos.seen import Seen, before
from tests.e2e.load.journal import Spot


def settled_before_commit(seen: Seen) -> Iterator[str]:
    """Nothing was committed that was not settled."""
    spots: dict[int, list[Spot]] = defaultdict(list)
    for spot in sorted(seen.records):
        spots[spot.lane].append(spot)
    stays: dict[int, list[Stay]] = defaultdict(list)
    for stay in sorted(seen.history.stock.stays):
        stays[stay.at.lane].append(stay)
    for claim in seen.history.stock.claims:
        if claim.topic == TOPIC:
            for spot in spots[claim.lane]:
                if claim.covers(spot.position) and not _may_be_committed(seen, spot, claim.at):
                    yield f"{seen.story(spot)}; it was committed by {claim.at:.3f}"
        elif claim.topic == RETRY:
            yield from _stays_too_early(seen, stays[claim.lane], claim)


def _may_be_committed(seen: Seen, spot: Spot, by: float) -> bool:
    # One is parked because it came back, so somebody had it before.
    return _is_done(seen, spot, by) or (bool(seen.stays[spot]) and _times_taken(seen, spot, by) > 0)


def _stays_too_early(seen: Seen, stays: list[Stay], claim: Claim) -> Iterator[str]:
    over: dict[Spot, int] = defaultdict(int)
    for stay in stays:
        if claim.covers(stay.at.position):
            over[stay.origin] += 1
    for origin, count in over.items():
        # Each stay begins after a delivery, and ends by another; the last one as a record ends.
        early = _times_taken(seen, origin, claim.at) < count + 1
        if early or (count == len(seen.stays[origin]) and not _is_done(seen, origin, claim.at)):
            yield f"{seen.story(origin)}; its stay in the retry topic was committed by {claim.at:.3f}"


def _times_taken(seen: Seen, spot: Spot, by: float) -> int:
    """At the most: a worker that died may have had it without having looked at it."""
    return sum(1 for _ in before(seen.deliveries[spot], by)) + seen.reasons.attempts_lost(by)


def _is_done(seen: Seen, spot: Spot, by: float) -> bool:
    never = float("inf")
    if min(seen.acked.get(spot, never), seen.rejected.get(spot, never)) <= by:
        return True
    # When a letter was written is not known: it may be there from when there was a reason for it.
    return any(may_be_given_up(seen, letter, by) for letter in seen.letters[spot])


def all_is_committed(seen: Seen) -> Iterator[str]:
    """What the sidecars counted is committed in the end."""
    last = {(claim.topic, claim.lane): claim for claim in seen.history.stock.claims}
    for spot in seen.records:
        claim = last.get((TOPIC, spot.lane))
        if claim is None or not claim.covers(spot.position):
            yield f"{seen.story(spot)}; the group would get it again"
    for stay in seen.history.stock.stays:
        claim = last.get((RETRY, stay.at.lane))
        if claim is None or not claim.covers(stay.at.position):
            yield f"{seen.story(stay.origin)}; the group would get it again from the retry topic"
