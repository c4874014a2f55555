"""What a process of the demo notes of its own doing: the books that the checker reads.

A line is `seconds word topic/lane positions`, as in `1763.204519 acked orders/3 1000-1249,1251`. It is handed to the
operating system before the worker settles, so that it is there whatever becomes of the process.
"""

import os
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from sidecar.model.records import Lane, Run


class Word(StrEnum):
    #: the broker has it, says the sidecar
    PUBLISHED = "published"
    TOOK = "took"
    #: took what came back from a worker that may have done it
    TOOK_AGAIN = "took-again"
    ACKED = "acked"
    NACKED = "nacked"
    REJECTED = "rejected"
    #: the process ended in order
    LEFT = "left"


#: what ends a record's time in a worker's hands
VERDICTS = frozenset((Word.ACKED, Word.NACKED, Word.REJECTED))


class Entry(NamedTuple):
    #: on the machine's monotonic clock, which all processes share
    at: float
    word: Word
    lane: Lane
    #: none: it speaks of no records
    runs: tuple[Run, ...]


class Journal:
    """Append-only. Any thread may write; a line is written whole."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, word: Word, topic: str, places: Iterable[tuple[int, int]]) -> None:
        """This happened to the records at these (lane, position)."""
        lanes: dict[int, list[int]] = {}
        for lane, position in places:
            lanes.setdefault(lane, []).append(position)
        self._write(f"{word} {topic}/{lane} {_write_runs(positions)}" for lane, positions in lanes.items())

    def farewell(self) -> None:
        """The last line of a process that was not killed."""
        self._write([f"{Word.LEFT} -/0 "])

    def _write(self, lines: Iterable[str]) -> None:
        at = f"{time.monotonic():.6f}"
        os.write(self._file, "".join(f"{at} {line}\n" for line in lines).encode())


class Reader:
    """Reads a journal, also one that still grows: each call answers what came since the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def news(self) -> Iterator[Entry]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            # The last line may be half written, or for ever, if its writer was killed: then it was not settled either.
            lines = file.read().split(b"\n")[:-1]
        for line in lines:
            self._offset += len(line) + 1
            yield _read_line(line.decode())


def _read_line(line: str) -> Entry:
    at, word, lane, runs = line.split(" ")
    topic, _, number = lane.rpartition("/")
    return Entry(float(at), Word(word), Lane(topic, int(number)), tuple(_read_runs(runs)))


def _write_runs(positions: list[int]) -> str:
    runs: list[list[int]] = []
    for position in positions:
        if runs and position == runs[-1][1] + 1:
            runs[-1][1] = position
        else:
            runs.append([position, position])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _read_runs(text: str) -> Iterator[Run]:
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        yield Run(int(first), int(last or first) + 1)
