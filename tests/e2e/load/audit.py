"""Compares the journals of the workers with what a broker has. Each check returns problems as sentences."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.e2e.load.journal import Entry, Reader, Spot, Word
from tests.e2e.load.kinds import DEADLY, kind_of


class Stored(NamedTuple):
    key: bytes | None
    value: bytes


@dataclass
class BrokerSnapshot:
    """What a broker has of one topic, and of the group that consumes it."""

    records: dict[Spot, Stored] = field(default_factory=dict)
    #: the runs that would not be redelivered if a sidecar started now
    committed: set[Spot] = field(default_factory=set)
    #: reasons by origin
    dead: dict[Spot, str] = field(default_factory=dict)
    #: origins of all records in the retry topic
    parked: set[Spot] = field(default_factory=set)


class JournalAudit:
    """Journals grow while they are read, one after the other: what happened in which order is known by the clock only,
    once all of it is here."""

    def __init__(self) -> None:
        self.taken: set[Spot] = set()
        self.acked: set[Spot] = set()
        self.settled: set[Spot] = set()
        #: with the journals that they are from, as they were read
        self._read: list[tuple[Entry, str]] = []
        self._readers: dict[Path, Reader] = {}

    def read(self, journals: Iterable[Path]) -> None:
        """Take in what is new."""
        for path in journals:
            self._readers.setdefault(path, Reader(path))
        for path, reader in self._readers.items():
            for entry in reader.news():
                self._read.append((entry, f"{path.parent.name}/{path.name}"))
                match entry.word:
                    case Word.TOOK:
                        self.taken.add(entry.spot)
                    case Word.ACKED:
                        self.acked.add(entry.spot)
                    case Word.SETTLED:
                        self.settled.add(entry.spot)

    @property
    def deliveries(self) -> int:
        return sum(entry.word is Word.TOOK for entry, _ in self._read)

    @property
    def repeats(self) -> int:
        """Deliveries of a record after a worker had acked it."""
        return len(self._repeated(Word.ACKED))

    @property
    def surprises(self) -> list[Entry]:
        """Those of them that were not flagged."""
        return [entry for entry in self._repeated(Word.ACKED) if not entry.possibly_processed]

    @property
    def broken(self) -> list[Entry]:
        """Those of them whose ack the sidecar had answered SETTLED."""
        return self._repeated(Word.SETTLED)

    def _repeated(self, after: Word) -> list[Entry]:
        done: set[Spot] = set()
        repeated = []
        for entry, _ in self._by_time():
            if entry.word is after:
                done.add(entry.spot)
            elif entry.word is Word.TOOK and entry.spot in done:
                repeated.append(entry)
        return repeated

    def _by_time(self) -> list[tuple[Entry, str]]:
        return sorted(self._read)

    def timeline(self, spot: Spot) -> str:
        """All that happened to a record, and where its lane was when it was delivered."""
        told = [
            f"{entry.at:.3f} {journal} {entry.word} attempt {entry.attempt} flagged {entry.possibly_processed}"
            for entry, journal in self._by_time()
            if entry.spot == spot
        ]
        began: dict[str, tuple[float, int]] = {}
        last: dict[str, int] = {}
        for entry, journal in self._by_time():
            if entry.word is Word.TOOK and entry.spot.lane == spot.lane:
                # If a worker goes back, its lane was assigned again.
                if entry.spot.position < last.get(journal, -1) - 20 or journal not in last:
                    began[f"{journal} at {entry.at:.3f}"] = (entry.at, entry.spot.position)
                last[journal] = entry.spot.position
        starts = "; ".join(f"{who} from {position}" for who, (_, position) in began.items())
        return f"{spot}: " + "; ".join(told) + f". Its lane was read by {starts}"

    def committed_too_early(self, snapshot: BrokerSnapshot) -> list[str]:
        """Records that are committed, though nobody acked them and they are not durable in a side topic."""
        return [
            f"{spot} {snapshot.records[spot]} is committed"
            for spot in snapshot.committed
            if spot not in self.acked and spot not in snapshot.dead and spot not in snapshot.parked
        ]

    def settled_and_not_committed(self, snapshot: BrokerSnapshot) -> list[str]:
        """Records that were answered SETTLED and are not committed: none after an orderly stop."""
        return [f"{spot} {snapshot.records[spot]}" for spot in self.settled - snapshot.committed - snapshot.parked]

    def unaccounted(self, snapshot: BrokerSnapshot) -> list[str]:
        """Records that are neither acked nor dead letters, and those that ended differently than they should."""
        problems = []
        for spot, (_, value) in snapshot.records.items():
            reason, letter = DEADLY.get(kind_of(value)), snapshot.dead.get(spot)
            if letter is None and spot not in self.acked:
                problems.append(f"{spot} {value!r} is lost")
            elif letter is not None and (reason is None or reason not in letter):
                problems.append(f"{spot} {value!r} is a dead letter: {letter}")
            elif reason is not None and spot in self.acked:
                problems.append(f"{spot} {value!r} was acked")
        return problems

    def check_order(self, snapshot: BrokerSnapshot) -> None:
        problems = self.out_of_order(snapshot)
        assert not problems, problems[:10]

    def out_of_order(self, snapshot: BrokerSnapshot) -> list[str]:
        """Records that were delivered before all earlier ones of their key were acked, or tried and given up."""
        queues: dict[tuple[int, bytes], list[Spot]] = defaultdict(list)
        names: dict[Spot, tuple[int, bytes]] = {}
        for spot, (key, _) in sorted(snapshot.records.items()):
            names[spot] = (spot.lane, key or b"")
            queues[names[spot]].append(spot)
        done: set[Spot] = set()
        #: how many of the first records of each key are done: that only grows
        heads: dict[tuple[int, bytes], int] = defaultdict(int)
        problems = []
        for batch in _batches(entry for entry, _ in self._by_time()):
            spots = {entry.spot for entry in batch}
            if batch[0].word is Word.ACKED:
                done |= spots
            elif batch[0].word is Word.TOOK:
                for spot in spots:
                    queue, name = queues[names[spot]], names[spot]
                    while heads[name] < len(queue) and queue[heads[name]] in done:
                        heads[name] += 1
                    # From the first that is not done to this one, all must be in the same batch.
                    for earlier in queue[heads[name] :]:
                        if earlier >= spot:
                            break
                        if earlier not in done and earlier not in spots:
                            problems.append(f"{spot} was delivered before {earlier} of its key {name[1]!r} was done")
                            break
                # One that is rejected is done when it was delivered: what comes after it may go.
                done |= spots & snapshot.dead.keys()
        return problems


def _batches(entries: Iterable[Entry]) -> Iterable[list[Entry]]:
    """Entries that were written in one line."""
    batch: list[Entry] = []
    for entry in entries:
        if batch and (entry.at, entry.word) != (batch[0].at, batch[0].word):
            yield batch
            batch = []
        batch.append(entry)
    if batch:
        yield batch
