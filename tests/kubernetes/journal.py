"""What the workers of a pod have noted."""

from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    what: str
    value: str
    process: int


class Journal:
    def __init__(self, folder: Path) -> None:
        self._file = folder / "journal"

    def lines(self) -> list[Line]:
        """Without one that is still being written."""
        if not self._file.exists():
            return []
        whole = self._file.read_text().split("\n")[:-1]
        return [Line(what, value, int(process)) for what, value, process in map(str.split, whole)]

    def values(self, what: str) -> list[str]:
        return [line.value for line in self.lines() if line.what == what]

    def done(self) -> set[str]:
        return set(self.values("done"))
