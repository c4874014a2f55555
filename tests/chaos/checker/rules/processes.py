"""How processes end."""

import signal
from collections.abc import Iterator

from tests.chaos.checker.history_index import HistoryIndex

#: how a process may end that was told to: in order, or by the very signal
_AS_TOLD = frozenset((0, -signal.SIGTERM, -signal.SIGKILL))


def processes_end_as_told(index: HistoryIndex) -> Iterator[str]:
    """No process ends by itself, and none says that something went wrong."""
    for process in index.history.processes:
        if process.code is None:
            yield f"{process.who}, process {process.pid}, never ended"
        elif not process.expected:
            yield f"{process.who}, process {process.pid}, ended by itself with {process.code}"
        elif process.code not in _AS_TOLD:
            yield f"{process.who}, process {process.pid}, was told to end and did with {process.code}"
    yield from index.history.complaints
