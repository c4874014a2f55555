"""A round as it is on the disk when it is over.

    plan.json        what was to happen
    diary            what the harness did to which process, and when
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

from tests.chaos.upsets import Upset, upsets_of
from tests.e2e.load.journal import Entry, Reader, Spot, Word

#: of the topic that is consumed, and of the group's own one where records wait
TOPIC, RETRY = "topic", "retry"


class Stored(NamedTuple):
    """A record as the broker has it."""

    key: str | None
    value: str


class Letter(NamedTuple):
    """A dead letter, as the broker has it."""

    spot: Spot
    key: str | None
    value: str
    reason: str


class Stay(NamedTuple):
    """A record in the retry topic."""

    at: Spot
    origin: Spot


class Claim(NamedTuple):
    """What a group would not get again if a sidecar started at this moment: runs of places of a lane."""

    at: float
    topic: str
    lane: int
    runs: tuple[tuple[int, int], ...]

    def covers(self, place: int) -> bool:
        return any(start <= place < stop for start, stop in self.runs)


class Life(NamedTuple):
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
class Stock:
    """What the broker has when the round is over, and how far the group was meanwhile."""

    records: dict[Spot, Stored] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    #: by time; the last of each lane is how the round ended
    claims: list[Claim] = field(default_factory=list)

    def to_json(self) -> str:
        told = asdict(self)
        told["records"] = [[*spot, *stored] for spot, stored in self.records.items()]
        return json.dumps(told)

    @classmethod
    def from_json(cls, text: str) -> "Stock":
        told: dict[str, Any] = json.loads(text)
        return cls(
            records={Spot(lane, place): Stored(key, value) for lane, place, key, value in told["records"]},
            letters=[Letter(Spot(*spot), key, value, reason) for spot, key, value, reason in told["letters"]],
            stays=[Stay(Spot(*at), Spot(*origin)) for at, origin in told["stays"]],
            claims=[
                Claim(at, topic, lane, tuple((start, stop) for start, stop in runs))
                for at, topic, lane, runs in told["claims"]
            ],
        )


@dataclass
class History:
    #: none, key or lane
    order: str
    #: where publishers were told that their values are
    published: Mapping[Spot, str]
    #: of all workers, by time
    notes: list[Note]
    stock: Stock
    lives: list[Life] = field(default_factory=list)
    #: what is wrong already without looking at records: it hung, a sidecar logged a bug
    complaints: list[str] = field(default_factory=list)
    #: what was done to whom, by time
    upsets: list[Upset] = field(default_factory=list)
    #: the broker, and its group protocol or subscription type
    broker: str = "local"
    variant: str = ""
    #: seconds that a worker may keep a batch; 0: as long as it lives
    lease: float = 0.0


def read(folder: Path) -> History:
    """Raises `OSError` and `ValueError` for a folder that no round has left."""
    plan = json.loads((folder / "plan.json").read_text())
    diary = [json.loads(line) for line in (folder / "diary").read_text().splitlines()]
    notes = sorted(note for path in folder.glob("journal-*") for note in notes_of(path))
    return History(
        order=plan["order"],
        published=_published(folder.glob("published-*")),
        notes=notes,
        stock=Stock.from_json((folder / "broker.json").read_text()),
        lives=_lives(diary),
        complaints=[entry["text"] for entry in diary if entry["word"] == "complaint"],
        upsets=upsets_of(diary, {note.writer: note.at for note in notes}),
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


def _lives(diary: list[dict[str, Any]]) -> list[Life]:
    """A process may end by itself only where the diary says that we made it."""
    begun = {entry["pid"]: entry for entry in diary if entry["word"] == "started"}
    ordered = {entry["pid"] for entry in diary if entry["word"] in ("killed", "told to stop")}
    ended = {entry["pid"]: entry["code"] for entry in diary if entry["word"] == "ended"}
    return [
        Life(entry["who"], pid, entry.get("journal", ""), ended.get(pid), pid in ordered)
        for pid, entry in begun.items()
    ]
