"""A round as it is on the disk when it is over.

    plan.json        what was to happen
    events           what the harness did to which process, and when
    published-*      what publishers were told to be there
    journal-*        what workers took, and what they said of it
    broker.json      what the broker has: records, dead letters, parked ones, and how far the group was when

`read` makes a `History` of the folder; the checker needs nothing else.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.checker.disturbances import Disturbance, disturbances_of
from tests.e2e.load.journal import Entry, Reader, Spot, Word

#: of the topic that is consumed, and of the group's own one where records wait
TOPIC, RETRY = "topic", "retry"


class Stored(NamedTuple):
    """A record as the broker has it."""

    key: str | None
    value: str


class DeadLetter(NamedTuple):
    """A dead letter, as the broker has it."""

    spot: Spot
    key: str | None
    value: str
    reason: str


class ParkedRecord(NamedTuple):
    """A record in the retry topic."""

    at: Spot
    origin: Spot


class Commit(NamedTuple):
    """What a group would not get again if a sidecar started at this moment: runs of places of a lane."""

    at: float
    topic: str
    lane: int
    runs: tuple[tuple[int, int], ...]

    @property
    def position(self) -> int:
        """Before it there is nothing that the group would get again."""
        return self.runs[0][1] if self.runs and not self.runs[0][0] else 0

    def covers(self, place: int) -> bool:
        return any(start <= place < stop for start, stop in self.runs)


class Owner(NamedTuple):
    """Which sidecars have a lane of the topic from then on, says the broker."""

    at: float
    lane: int
    whose: tuple[str, ...]


class ProcessRun(NamedTuple):
    """A process: what it was, how it ended, and whether that was our doing."""

    who: str
    pid: int
    journal: str
    code: int | None
    expected: bool


class Note(NamedTuple):
    """A line of a journal, and whose it is."""

    at: float
    writer: str
    word: Word
    entries: tuple[Entry, ...]


@dataclass
class BrokerSnapshot:
    """What the broker has when the round is over, and how far the group was meanwhile."""

    records: dict[Spot, Stored] = field(default_factory=dict)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    parked: list[ParkedRecord] = field(default_factory=list)
    #: by time; the last of each lane is how the round ended
    commits: list[Commit] = field(default_factory=list)
    #: by time; empty where the broker does not tell
    owners: list[Owner] = field(default_factory=list)

    def to_json(self) -> str:
        told = asdict(self)
        told["records"] = [[*spot, *stored] for spot, stored in self.records.items()]
        return json.dumps(told)

    @classmethod
    def from_json(cls, text: str) -> "BrokerSnapshot":
        told: dict[str, Any] = json.loads(text)
        return cls(
            records={Spot(lane, place): Stored(key, value) for lane, place, key, value in told["records"]},
            dead_letters=[
                DeadLetter(Spot(*spot), key, value, reason) for spot, key, value, reason in told["dead_letters"]
            ],
            parked=[ParkedRecord(Spot(*at), Spot(*origin)) for at, origin in told["parked"]],
            commits=[
                Commit(at, topic, lane, tuple((start, stop) for start, stop in runs))
                for at, topic, lane, runs in told["commits"]
            ],
            owners=[Owner(at, lane, tuple(whose)) for at, lane, whose in told.get("owners", [])],
        )


@dataclass
class History:
    #: none, key or lane
    order: str
    #: where publishers were told that their values are
    published: Mapping[Spot, str]
    #: of all workers, by time
    notes: list[Note]
    snapshot: BrokerSnapshot
    processes: list[ProcessRun] = field(default_factory=list)
    #: what is wrong already without looking at records: it hung, a sidecar logged a bug
    complaints: list[str] = field(default_factory=list)
    #: what was done to whom, by time
    disturbances: list[Disturbance] = field(default_factory=list)
    #: the broker, and its group protocol or subscription type
    broker: str = "local"
    variant: str = ""
    #: seconds that a worker may keep a batch; 0: as long as it lives
    lease: float = 0.0


def read(folder: Path) -> History:
    """Raises `OSError` and `ValueError` for a folder that no round has left."""
    plan = json.loads((folder / "plan.json").read_text())
    event_log = [json.loads(line) for line in (folder / "events").read_text().splitlines()]
    notes = sorted(note for path in folder.glob("journal-*") for note in notes_of(path))
    return History(
        order=plan["order"],
        published=_published(folder.glob("published-*")),
        notes=notes,
        snapshot=BrokerSnapshot.from_json((folder / "broker.json").read_text()),
        processes=_processes(event_log),
        complaints=[entry["text"] for entry in event_log if entry["word"] == "complaint"],
        disturbances=disturbances_of(event_log, {note.writer: note.at for note in notes}),
        broker=plan.get("broker", "local"),
        variant=plan.get("variant", ""),
        lease=plan.get("leases", {}).get("seconds", 0.0),
    )


def notes_of(path: Path) -> Iterable[Note]:
    """The lines of a worker's journal."""
    line: list[Entry] = []
    for entry in Reader(path).news():
        if line and (entry.at, entry.word) != (line[0].at, line[0].word):
            yield Note(line[0].at, path.name, line[0].word, tuple(line))
            line = []
        line.append(entry)
    if line:
        yield Note(line[0].at, path.name, line[0].word, tuple(line))


def _published(paths: Iterable[Path]) -> dict[Spot, str]:
    found: dict[Spot, str] = {}
    for path in paths:
        *lines, _ = path.read_text().split("\n")
        for line in lines:
            lane, place, value = json.loads(line)
            found[Spot(lane, place)] = value
    return found


def _processes(event_log: list[dict[str, Any]]) -> list[ProcessRun]:
    """A process may end by itself only where the event log says that we made it."""
    begun = {entry["pid"]: entry for entry in event_log if entry["word"] == "started"}
    ordered = {entry["pid"] for entry in event_log if entry["word"] in ("killed", "told to stop")}
    ended = {entry["pid"]: entry["code"] for entry in event_log if entry["word"] == "ended"}
    return [
        ProcessRun(entry["who"], pid, entry.get("journal", ""), ended.get(pid), pid in ordered)
        for pid, entry in begun.items()
    ]
