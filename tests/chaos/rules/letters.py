"""Dead letters: those that are to be, and no others."""

from collections.abc import Iterator

from tests.chaos.history import Letter
from tests.chaos.seen import Seen, before
from tests.e2e.load.journal import Spot
from tests.e2e.load.kinds import DEADLY, Kind

#: times that a worker must have been lost with a record before the sidecar may take the record for the reason
_DEATHS = 3
_EVER = float("inf")


def letters_are_complete(seen: Seen) -> Iterator[str]:
    """Dead letters are complete, whole, and only for those that are to be."""
    for spot, stored in seen.records.items():
        reason = DEADLY.get(seen.kind(spot))
        letters = seen.letters.get(spot, [])
        if reason is not None and not letters:
            yield f"{seen.story(spot)}; it has no dead letter"
        for letter in letters:
            if (letter.key, letter.value) != stored:
                yield f"{seen.name(spot)} is a dead letter as {letter.key} {letter.value}"
            # Whatever a record is, several workers may have died with it.
            if "WORKER_DIED" not in letter.reason and (reason is None or reason not in letter.reason):
                yield f"{seen.story(spot)}; it is a dead letter for {letter.reason!r} instead of {reason}"
            elif not may_be_given_up(seen, letter, _EVER):
                yield f"{seen.story(spot)}; that is no reason for a dead letter: {letter.reason}"
    for spot, letters in seen.letters.items():
        if spot not in seen.records:
            yield f"{letters[0].value} is a dead letter of {spot.lane}/{spot.position}, where nothing is"


def may_be_given_up(seen: Seen, letter: Letter, by: float) -> bool:
    """Whether what the letter says had happened by then."""
    if "WORKER_DIED" in letter.reason:
        return _has_killed(seen, letter.spot, by)
    if DEADLY[Kind.BAD] in letter.reason:
        return letter.spot in seen.rejected and seen.rejected[letter.spot] <= by
    taken = before(seen.deliveries[letter.spot], by)
    return any(one.came_back and one.said is not None and one.said.at <= by for one in taken)


def _has_killed(seen: Seen, spot: Spot, by: float) -> bool:
    """Whether workers were lost with it, the last one while it worked on it: others may have had it in their queues."""
    lost = (
        not one.settled and seen.reasons.session_ended(one.writer, one.at, by)
        for one in before(seen.deliveries[spot], by)
    )
    return any(lost) and seen.reasons.sessions_lost(by) >= _DEATHS
