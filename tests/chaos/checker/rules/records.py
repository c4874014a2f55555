"""Records are there, whole, and none is lost."""

from collections.abc import Iterator

from tests.chaos.checker.history_index import HistoryIndex
from tests.e2e.load.journal import digest_of


def there_was_something(index: HistoryIndex) -> Iterator[str]:
    """There was something to judge."""
    if not index.history.published:
        yield "nothing was published"
    if not any(index.deliveries.values()):
        yield "nothing was delivered"
    if not index.history.snapshot.commits:
        yield "no commit was seen"


def is_there(index: HistoryIndex) -> Iterator[str]:
    """What was confirmed to a publisher is in the broker."""
    for spot, value in index.history.published.items():
        if spot not in index.records:
            yield f"{spot.lane}/{spot.position} {value} is not there"
        elif index.records[spot].value != value:
            yield f"{index.name(spot)} was published as {value}"


def nothing_is_lost(index: HistoryIndex) -> Iterator[str]:
    """Nothing is lost."""
    for spot in index.records:
        if spot not in index.acked and spot not in index.dead_letters:
            yield index.timeline(spot)


def values_are_whole(index: HistoryIndex) -> Iterator[str]:
    """A worker gets what is in the broker."""
    for spot, deliveries in index.all_deliveries():
        stored = index.records.get(spot)
        for one in deliveries:
            if stored is None:
                yield f"{one.writer} took {spot.lane}/{spot.position} at {one.at:.3f}, where nothing is"
            elif one.entry.digest and one.entry.digest != digest_of((stored.key or "").encode(), stored.value.encode()):
                yield f"{one.writer} took something else at {one.at:.3f}: {index.timeline(spot)}"


def words_are_founded(index: HistoryIndex) -> Iterator[str]:
    """Nobody says anything of what was not taken, or settled what was not acked."""
    for note, entry in index.unfounded:
        yield f"{note.writer} {note.word} at {note.at:.3f}: {index.timeline(entry.spot)}"
