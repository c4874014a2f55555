"""Dead letters: those that are to be, and no others."""

from collections.abc import Iterator

from tests.chaos.seen import SAID, Seen
from tests.e2e.load.journal import Spot, Word
from tests.e2e.load.kinds import DEADLY, kind_of

#: times that a worker must have been lost with a record before the sidecar may take the record for the reason
_DEATHS = 3


def letters_are_complete(seen: Seen) -> Iterator[str]:
    """Dead letters are complete, whole, and only for those that are to be."""
    for spot, stored in seen.records.items():
        reason = DEADLY.get(kind_of(stored.value.encode()))
        letters = seen.letters.get(spot, [])
        if reason is not None and not letters:
            yield f"{seen.story(spot)}; it has no dead letter"
        for letter in letters:
            if (letter.key, letter.value) != stored:
                yield f"{seen.name(spot)} is a dead letter as {letter.key} {letter.value}"
            if reason is not None and reason not in letter.reason:
                yield f"{seen.name(spot)} is a dead letter for {letter.reason!r} instead of {reason}"
            elif reason is None and not ("WORKER_DIED" in letter.reason and _deaths(seen, spot) >= _DEATHS):
                yield f"{seen.story(spot)}; it is a dead letter: {letter.reason}"
    for spot, letters in seen.letters.items():
        if spot not in seen.records:
            yield f"{letters[0].value} is a dead letter of {spot.lane}/{spot.position}, where nothing is"


def _deaths(seen: Seen, spot: Spot) -> int:
    """How often a worker took it and said nothing more."""
    open_ = 0
    for note, _ in seen.told[spot]:
        if note.word is Word.TOOK:
            open_ += 1
        elif note.word in SAID:
            open_ -= 1
    return open_
