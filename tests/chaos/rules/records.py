"""Records are there, whole, and none is lost."""

from collections.abc import Iterator

from tests.chaos.seen import Seen
from tests.e2e.load.journal import digest_of


def there_was_something(seen: Seen) -> Iterator[str]:
    """There was something to judge."""
    if not seen.history.published:
        yield "nothing was published"
    if not any(seen.deliveries.values()):
        yield "nothing was delivered"
    if not seen.history.stock.claims:
        yield "no commit was seen"


def is_there(seen: Seen) -> Iterator[str]:
    """What was confirmed to a publisher is in the broker."""
    for spot, value in seen.history.published.items():
        if spot not in seen.records:
            yield f"{spot.lane}/{spot.position} {value} is not there"
        elif seen.records[spot].value != value:
            yield f"{seen.name(spot)} was published as {value}"


def nothing_is_lost(seen: Seen) -> Iterator[str]:
    """Nothing is lost."""
    for spot in seen.records:
        if spot not in seen.acked and spot not in seen.letters:
            yield seen.story(spot)


def values_are_whole(seen: Seen) -> Iterator[str]:
    """A worker gets what is in the broker."""
    for spot, deliveries in seen.all_deliveries():
        stored = seen.records.get(spot)
        for one in deliveries:
            if stored is None:
                yield f"{one.writer} took {spot.lane}/{spot.position} at {one.at:.3f}, where nothing is"
            elif one.entry.digest and one.entry.digest != digest_of((stored.key or "").encode(), stored.value.encode()):
                yield f"{one.writer} took something else at {one.at:.3f}: {seen.story(spot)}"


def words_are_founded(seen: Seen) -> Iterator[str]:
    """Nobody says anything of what was not taken, or settled what was not acked."""
    for note, entry in seen.unfounded:
        yield f"{note.writer} {note.word} at {note.at:.3f}: {seen.story(entry.spot)}"
