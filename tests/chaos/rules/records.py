"""Records are there, whole, and none is lost."""

from collections.abc import Iterator

from tests.chaos.seen import Seen


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
