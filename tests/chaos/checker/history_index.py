"""A history, looked up the ways that the rules need. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.chaos.checker.history import DeadLetter, History, Note, ParkedRecord, Stored
from tests.chaos.checker.reasons import Reasons
from tests.e2e.load.journal import Entry, Spot, Word
from tests.e2e.load.kinds import Kind, kind_of

#: what ends a delivery, as far as the worker is concerned
SAID = frozenset((Word.ACKED, Word.NACKED, Word.REJECTED))


@dataclass
class Delivery:
    """One record in one worker's hands, once."""

    note: Note
    entry: Entry
    #: what the worker said of it, if it did
    said: Note | None = None
    #: the sidecar answered that the ack counts
    settled: bool = False

    @property
    def at(self) -> float:
        return self.note.at

    @property
    def writer(self) -> str:
        return self.note.writer

    def is_open(self, at: float) -> bool:
        """Whether the worker had it in its hands then, as far as it knew."""
        return self.at <= at and (self.said is None or self.said.at > at)

    @property
    def came_back(self) -> bool:
        """The worker asked for it again."""
        return self.said is not None and self.said.word is Word.NACKED


class HistoryIndex:
    def __init__(self, history: History) -> None:
        self.history = history
        self.records: Mapping[Spot, Stored] = history.snapshot.records
        self.reasons = Reasons(history)
        #: when a worker first said that it is done with a record
        self.acked: dict[Spot, float] = {}
        self.rejected: dict[Spot, float] = {}
        #: of each record: all lines that have it, by time
        self.told: dict[Spot, list[tuple[Note, Entry]]] = defaultdict(list)
        #: of each record, by time
        self.deliveries: dict[Spot, list[Delivery]] = defaultdict(list)
        #: lines about something that no earlier line tells
        self.unfounded: list[tuple[Note, Entry]] = []
        for note in history.notes:
            for entry in note.entries:
                self.told[entry.spot].append((note, entry))
                self._follow(note, entry)
        #: of each journal: the sidecar that its worker works for
        self.sidecars = {one.journal: one.who.partition(" of ")[2] for one in history.processes if one.journal}
        self.dead_letters: dict[Spot, list[DeadLetter]] = defaultdict(list)
        for dead_letter in history.snapshot.dead_letters:
            self.dead_letters[dead_letter.spot].append(dead_letter)
        #: where a record waited in the retry topic, oldest first
        self.parked: dict[Spot, list[ParkedRecord]] = defaultdict(list)
        for parked_record in sorted(history.snapshot.parked):
            self.parked[parked_record.origin].append(parked_record)

    def _follow(self, note: Note, entry: Entry) -> None:
        mine = [
            one for one in self.deliveries[entry.spot] if (one.writer, one.entry.lease) == (note.writer, entry.lease)
        ]
        if note.word is Word.TOOK:
            self.deliveries[entry.spot].append(Delivery(note, entry))
        elif note.word in SAID:
            if note.word is not Word.NACKED:
                (self.acked if note.word is Word.ACKED else self.rejected).setdefault(entry.spot, note.at)
            found = next((one for one in mine if one.said is None), None)
            if found is None:
                self.unfounded.append((note, entry))
            else:
                found.said = note
        elif note.word is Word.SETTLED:
            acked = (one for one in mine if one.said and one.said.word is Word.ACKED and not one.settled)
            found = next(acked, None)
            if found is None:
                self.unfounded.append((note, entry))
            else:
                found.settled = True

    def kind(self, spot: Spot) -> Kind:
        return kind_of(self.records[spot].value.encode())

    def counts(self) -> dict[str, int]:
        takes = [one for deliveries in self.deliveries.values() for one in deliveries]
        return {
            "records": len(self.records),
            "deliveries": len(takes),
            "again after an ack": sum(self.acked.get(one.entry.spot, one.at) < one.at for one in takes),
            "dead letters": len(self.dead_letters),
            "dead letters written twice": len(self.history.snapshot.dead_letters) - len(self.dead_letters),
            "parked": len(self.parked),
            "commits seen": len(self.history.snapshot.commits),
        }

    def name(self, spot: Spot) -> str:
        stored = self.records.get(spot)
        return f"{spot.lane}/{spot.position} {stored.value if stored else '?'}"

    def timeline(self, spot: Spot) -> str:
        """All that happened to a record."""
        told = (
            f"{note.at:.3f} {note.writer} {note.word}"
            + (f" attempt {entry.attempt}{' flagged' if entry.possibly_processed else ''}" * (note.word is Word.TOOK))
            for note, entry in self.told.get(spot, ())
        )
        return f"{self.name(spot)}: {'; '.join(told) or 'was never delivered'}"

    def all_deliveries(self) -> Iterable[tuple[Spot, list[Delivery]]]:
        return ((spot, deliveries) for spot, deliveries in self.deliveries.items() if deliveries)


def before(deliveries: Iterable[Delivery], at: float) -> Iterator[Delivery]:
    return (one for one in deliveries if one.at <= at)
