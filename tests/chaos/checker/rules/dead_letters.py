"""Dead letters: those that are to be, and no others."""

from collections.abc import Iterator

from tests.chaos.checker.history import DeadLetter
from tests.chaos.checker.history_index import HistoryIndex, before
from tests.e2e.load.journal import Spot
from tests.e2e.load.kinds import DEADLY, Kind

#: times that a worker must have been lost with a record before the sidecar may take the record for the reason
_CRASHES = 3
_EVER = float("inf")


def dead_letters_are_complete(index: HistoryIndex) -> Iterator[str]:
    """Dead letters are complete, whole, and only for those that are to be."""
    for spot, stored in index.records.items():
        reason = DEADLY.get(index.kind(spot))
        dead_letters = index.dead_letters.get(spot, [])
        if reason is not None and not dead_letters:
            yield f"{index.timeline(spot)}; it has no dead letter"
        for dead_letter in dead_letters:
            if (dead_letter.key, dead_letter.value) != stored:
                yield f"{index.name(spot)} is a dead letter as {dead_letter.key} {dead_letter.value}"
            # Whatever a record is, several workers may have died with it.
            if "WORKER_DIED" not in dead_letter.reason and (reason is None or reason not in dead_letter.reason):
                yield f"{index.timeline(spot)}; it is a dead letter for {dead_letter.reason!r} instead of {reason}"
            elif not may_be_given_up(index, dead_letter, _EVER):
                yield f"{index.timeline(spot)}; that is no reason for a dead letter: {dead_letter.reason}"
    for spot, dead_letters in index.dead_letters.items():
        if spot not in index.records:
            yield f"{dead_letters[0].value} is a dead letter of {spot.lane}/{spot.position}, where nothing is"


def may_be_given_up(index: HistoryIndex, dead_letter: DeadLetter, by: float) -> bool:
    """Whether what the dead letter says had happened by then."""
    if "WORKER_DIED" in dead_letter.reason:
        return _has_killed(index, dead_letter.spot, by)
    if DEADLY[Kind.BAD] in dead_letter.reason:
        return dead_letter.spot in index.rejected and index.rejected[dead_letter.spot] <= by
    taken = before(index.deliveries[dead_letter.spot], by)
    return any(one.came_back and one.said is not None and one.said.at <= by for one in taken)


def _has_killed(index: HistoryIndex, spot: Spot, by: float) -> bool:
    """Whether workers were lost with it, the last one while it worked on it: others may have had it in their queues."""
    lost = (
        not one.settled and index.reasons.session_ended(one.writer, one.at, by)
        for one in before(index.deliveries[spot], by)
    )
    return any(lost) and index.reasons.sessions_lost(by) >= _CRASHES
