"""How long the orders of a killed worker took to be in other hands, by the workers' own journals."""

from collections.abc import Iterable
from pathlib import Path

from sidecar.cli.demo.journal import VERDICTS, Entry, Reader, Word
from sidecar.cli.demo.plan import Folder
from sidecar.model.records import Lane
from sidecar.model.run_set import RunSet


class Comeback:
    def __init__(self, folder: Folder, victim: str, killed_at: float) -> None:
        """Made after the victim is dead, so that its journal is complete."""
        self._folder = folder
        self._killed_at = killed_at
        self._missing = _in_hand(folder.journal(victim))
        self._readers: dict[Path, Reader] = {}
        #: what the victim had taken and not settled
        self.orders = self._count()
        #: seconds from the kill until the first and the last of them was with another worker
        self.first = 0.0
        self.last = 0.0

    def is_complete(self) -> bool:
        """Looks for what came back since the last look."""
        for path in self._folder.journals.iterdir():
            for entry in self._readers.setdefault(path, Reader(path)).news():
                if entry.word is Word.TOOK_AGAIN and entry.at > self._killed_at:
                    self._came_back(entry)
        return not self._count()

    def _came_back(self, entry: Entry) -> None:
        before = self._count()
        for run in entry.runs:
            self._missing.get(entry.lane, RunSet()).discard(run)
        if self._count() < before:
            after = entry.at - self._killed_at
            self.first = min(self.first or after, after)
            self.last = max(self.last, after)

    def _count(self) -> int:
        return sum(len(runs) for runs in self._missing.values())


def busiest(folder: Folder, names: Iterable[str]) -> str | None:
    """The worker that has most in its hands, by its own journal. None: none has anything."""
    held = {name: sum(map(len, _in_hand(folder.journal(name)).values())) for name in names}
    name = max(held, key=held.__getitem__)
    return name if held[name] else None


def _in_hand(journal: Path) -> dict[Lane, RunSet]:
    """What a worker took and said nothing of."""
    held: dict[Lane, RunSet] = {}
    for entry in Reader(journal).news():
        runs = held.setdefault(entry.lane, RunSet())
        for run in entry.runs:
            (runs.discard if entry.word in VERDICTS else runs.add)(run)
    return held
