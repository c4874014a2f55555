"""What the group was told to be done: nothing too early, and everything in the end."""

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.history import RETRY, TOPIC, Stay
from tests.chaos.seen import Seen
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
                if claim.covers(spot.position) and not (_is_done(seen, spot, claim.at) or seen.stays[spot]):
                    yield f"{seen.story(spot)}; it was committed by {claim.at:.3f}"
        elif claim.topic == RETRY:
            for stay in stays[claim.lane]:
                # One that was parked again later is settled where it was before.
                last = seen.stays[stay.origin][-1] == stay
                if claim.covers(stay.at.position) and last and not _is_done(seen, stay.origin, claim.at):
                    yield f"{seen.story(stay.origin)}; its stay in the retry topic was committed by {claim.at:.3f}"


def _is_done(seen: Seen, spot: Spot, by: float) -> bool:
    never = float("inf")
    if min(seen.acked.get(spot, never), seen.rejected.get(spot, never)) <= by:
        return True
    # One that was given up without a worker's word has that from its letter alone.
    return bool(seen.letters[spot]) and spot not in seen.rejected


def all_is_committed(seen: Seen) -> Iterator[str]:
    """What the sidecars counted is committed in the end."""
    last = {(claim.topic, claim.lane): claim for claim in seen.history.stock.claims}
    for spot in seen.records:
        claim = last.get((TOPIC, spot.lane))
        if claim is None or not claim.covers(spot.position):
            yield f"{seen.story(spot)}; the group would get it again"
