"""Journals: what the demo's publishers and workers write down themselves, and what all journals together say.

A line is `seconds action topic/lane positions`, as in `1763.204519 acked orders/3 1000-1249,1251`. It is handed to the
operating system before the worker settles, so that it survives a kill of the process.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from sidecar.model.records import Lane, Run
from sidecar.model.run_set import RunSet

#: the lane and position of a record, which identify it
RecordId = tuple[Lane, int]
Lanes = defaultdict[Lane, RunSet]


class Action(StrEnum):
    #: the sidecar confirmed that the broker has it
    PUBLISHED = "published"
    RECEIVED = "received"
    #: received again after another worker may have processed it
    RECEIVED_AGAIN = "received-again"
    ACKED = "acked"
    NACKED = "nacked"
    REJECTED = "rejected"
    #: the process ended without being killed
    STOPPED = "stopped"


_OUTCOMES = frozenset((Action.ACKED, Action.NACKED, Action.REJECTED))


class JournalEntry(NamedTuple):
    #: seconds on the monotonic clock, which all processes of a machine share
    at: float
    action: Action
    lane: Lane
    #: empty if the action is not about records
    runs: tuple[Run, ...]


class Journal:
    """Append-only. Any thread may write; a line is written whole."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, action: Action, topic: str, places: Iterable[tuple[int, int]]) -> None:
        """Writes that this happened to the records at these (lane, position)."""
        lanes: dict[int, list[int]] = {}
        for lane, position in places:
            lanes.setdefault(lane, []).append(position)
        self._append(f"{action} {topic}/{lane} {_write_runs(positions)}" for lane, positions in lanes.items())

    def write_end(self) -> None:
        """Writes the last line of a process that is not killed."""
        self._append([f"{Action.STOPPED} -/0 "])

    def _append(self, lines: Iterable[str]) -> None:
        at = f"{time.monotonic():.6f}"
        os.write(self._file, "".join(f"{at} {line}\n" for line in lines).encode())


class JournalReader:
    """Reads a journal, also while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_entries(self) -> Iterator[JournalEntry]:
        """The entries since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            # The last line may be half written, and stays so if its writer was killed; then it did not settle either.
            lines = file.read().split(b"\n")[:-1]
        for line in lines:
            self._offset += len(line) + 1
            yield _read_line(line.decode())


def _read_line(line: str) -> JournalEntry:
    at, action, lane, runs = line.split(" ")
    topic, _, number = lane.rpartition("/")
    return JournalEntry(float(at), Action(action), Lane(topic, int(number)), tuple(_read_runs(runs)))


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


class JournalSummary:
    """What all processes wrote down."""

    def __init__(self) -> None:
        #: published records that the sidecar confirmed to be on disk
        self.confirmed = Lanes(RunSet)
        self.acked = Lanes(RunSet)
        #: received although possibly processed before: a worker had died with it, or it was parked
        self.received_again = Lanes(RunSet)
        #: how often each was nacked
        self.nacked: Counter[RecordId] = Counter()
        self.rejected: set[RecordId] = set()
        #: records acked more than once, with the names of the workers, each as often as it acked
        self.repeated: dict[RecordId, list[str]] = {}
        #: processes that were killed
        self.killed: set[str] = set()
        self._acked_by: dict[str, Lanes] = {}

    def add(self, name: str, entry: JournalEntry) -> None:
        """Adds an entry of the journal of that name."""
        match entry.action:
            case Action.PUBLISHED:
                _add(self.confirmed, entry)
            case Action.RECEIVED_AGAIN:
                _add(self.received_again, entry)
            case Action.ACKED:
                self._ack(name, entry)
            case Action.NACKED:
                self.nacked.update(_record_ids(entry))
            case Action.REJECTED:
                self.rejected.update(_record_ids(entry))
            case Action.RECEIVED | Action.STOPPED:
                pass

    def _ack(self, name: str, entry: JournalEntry) -> None:
        for run in entry.runs:
            for position in _common(self.acked[entry.lane], run):
                record = entry.lane, position
                self.repeated.setdefault(record, [*self._ackers(record)]).append(name)
        _add(self.acked, entry)
        _add(self._acked_by.setdefault(name, Lanes(RunSet)), entry)

    def _ackers(self, record: RecordId) -> Iterator[str]:
        lane, position = record
        return (name for name, lanes in self._acked_by.items() if position in lanes[lane])


def read_journals(folder: Path) -> JournalSummary:
    summary = JournalSummary()
    for path in sorted(folder.glob("*.log")):
        entries = [*JournalReader(path).new_entries()]
        if not entries or entries[-1].action is not Action.STOPPED:
            summary.killed.add(path.stem)
        for entry in entries:
            summary.add(path.stem, entry)
    return summary


def _add(lanes: Lanes, entry: JournalEntry) -> None:
    for run in entry.runs:
        lanes[entry.lane].add(run)


def _record_ids(entry: JournalEntry) -> Iterator[RecordId]:
    return ((entry.lane, position) for run in entry.runs for position in range(*run))


def _common(runs: RunSet, run: Run) -> Iterator[int]:
    """The positions that are in both."""
    return iter(()) if runs.missing(run) == [run] else (position for position in range(*run) if position in runs)


class Recovery:
    """How long the records of a killed worker take to reach other workers, by the workers' journals.

    Made after the worker is dead, so that its journal is complete.
    """

    def __init__(self, folder: Path, worker: str, killed_at: float) -> None:
        self._folder = folder
        self._killed_at = killed_at
        self._missing = _unsettled(folder / f"{worker}.log")
        self._readers: dict[Path, JournalReader] = {}
        #: how many records the worker had received and not settled
        self.records = self._missing_count()
        #: seconds from the kill until another worker received the first and the last of them
        self.first = 0.0
        self.last = 0.0

    def is_complete(self) -> bool:
        """Reads what the journals say since the last call."""
        for path in self._folder.iterdir():
            for entry in self._readers.setdefault(path, JournalReader(path)).new_entries():
                if entry.action is Action.RECEIVED_AGAIN and entry.at > self._killed_at:
                    self._received(entry)
        return not self._missing_count()

    def _received(self, entry: JournalEntry) -> None:
        before = self._missing_count()
        for run in entry.runs:
            self._missing.get(entry.lane, RunSet()).discard(run)
        if self._missing_count() < before:
            after = entry.at - self._killed_at
            self.first = min(self.first or after, after)
            self.last = max(self.last, after)

    def _missing_count(self) -> int:
        return sum(len(runs) for runs in self._missing.values())


def busiest(folder: Path, names: Iterable[str]) -> str | None:
    """The worker with the most unsettled records, by its own journal. None if no worker has any."""
    held = {name: sum(map(len, _unsettled(folder / f"{name}.log").values())) for name in names}
    name = max(held, key=held.__getitem__)
    return name if held[name] else None


def _unsettled(journal: Path) -> dict[Lane, RunSet]:
    """What a worker received and did not settle."""
    held: dict[Lane, RunSet] = {}
    for entry in JournalReader(journal).new_entries():
        runs = held.setdefault(entry.lane, RunSet())
        for run in entry.runs:
            (runs.discard if entry.action in _OUTCOMES else runs.add)(run)
    return held
