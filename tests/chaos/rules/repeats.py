"""Records that come again: with a reason, and said to be such."""

from collections.abc import Iterator

from tests.chaos.seen import SAID, Seen
from tests.e2e.load.journal import Word


def repeats_are_flagged(seen: Seen) -> Iterator[str]:
    """A record that comes again after an ack, or after an unknown outcome, says so."""
    for spot, told in seen.told.items():
        # What each worker has last said of it.
        open_at: set[str] = set()
        for note, entry in told:
            if note.word is Word.TOOK:
                known = entry.possibly_processed
                if not known and seen.acked.get(spot, note.at) < note.at:
                    yield f"acked before {note.at:.3f}: {seen.story(spot)}"
                elif not known and open_at - {note.writer}:
                    yield f"in somebody's hands before {note.at:.3f}: {seen.story(spot)}"
                open_at.add(note.writer)
            elif note.word in SAID:
                open_at.discard(note.writer)
