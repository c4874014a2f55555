"""Of processes."""

from collections.abc import Iterator

from tests.chaos.seen import Seen


def lives_end_as_told(seen: Seen) -> Iterator[str]:
    """No process ends by itself, and none says that something went wrong."""
    for life in seen.history.lives:
        if life.code is None:
            yield f"{life.who}, process {life.pid}, never ended"
        elif not life.expected:
            yield f"{life.who}, process {life.pid}, ended by itself with {life.code}"
    yield from seen.history.complaints
