"""Of processes."""

import signal
from collections.abc import Iterator

from tests.chaos.seen import Seen

#: how a process may end that was told to: in order, or by the very signal
_AS_TOLD = frozenset((0, -signal.SIGTERM, -signal.SIGKILL))


def lives_end_as_told(seen: Seen) -> Iterator[str]:
    """No process ends by itself, and none says that something went wrong."""
    for life in seen.history.lives:
        if life.code is None:
            yield f"{life.who}, process {life.pid}, never ended"
        elif not life.expected:
            yield f"{life.who}, process {life.pid}, ended by itself with {life.code}"
        elif life.code not in _AS_TOLD:
            yield f"{life.who}, process {life.pid}, was told to end and did with {life.code}"
    yield from seen.history.complaints
