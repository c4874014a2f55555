"""What the broker and the workers' journals say, and whether it fits together. The sidecar is not asked."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.load import origins
from tests.e2e.load.database import Database, headers_of
from tests.e2e.load.journal import Entry, Reader, Spot, Word
from tests.e2e.load.kinds import DEADLY, kind_of
from tests.e2e.load.processes import TOPIC


@dataclass
class EmbeddedSnapshot:
    """What the broker has on disk."""

    values: dict[Spot, bytes] = field(default_factory=dict)
    #: what the group would not get again if a sidecar started now
    committed: set[Spot] = field(default_factory=set)
    #: reasons by origin
    dead: dict[Spot, str] = field(default_factory=dict)
    #: by origin, oldest first: whether that stay in the retry topic is over, as far as the group is concerned
    parked: dict[Spot, list[bool]] = field(default_factory=lambda: defaultdict(list))


class EmbeddedAudit:
    """Compares. Each check says what is wrong as sentences."""

    def __init__(self, data: Path) -> None:
        self.snapshot = EmbeddedSnapshot()
        self.acked: set[Spot] = set()
        self.settled: set[Spot] = set()
        #: deliveries of a record after a worker had acked it
        self.repeats = 0
        #: those among them that were not flagged
        self.surprises: list[Entry] = []
        #: those among them that came although the sidecar had said that the ack counts
        self.broken: list[Entry] = []
        self._data = data
        self._readers: dict[Path, Reader] = {}

    def read(self, journals: list[Path]) -> None:
        """Take in what is new."""
        for path in journals:
            self._readers.setdefault(path, Reader(path))
        # By time, so that a delivery after an ack is known as one.
        for entry in sorted(entry for reader in self._readers.values() for entry in reader.news()):
            if entry.word is Word.ACKED:
                self.acked.add(entry.spot)
            elif entry.word is Word.SETTLED:
                self.settled.add(entry.spot)
            elif entry.word is Word.TOOK and entry.spot in self.acked:
                self.repeats += 1
                if not entry.possibly_processed:
                    self.surprises.append(entry)
                if entry.spot in self.settled:
                    self.broken.append(entry)
        self.snapshot = _take_snapshot(self._data)

    def committed_too_early(self) -> list[str]:
        """What the group would never get again, though nobody acked it and it is not durably aside."""
        snapshot = self.snapshot
        early = [
            f"{spot} {snapshot.values[spot]!r} is committed"
            for spot in snapshot.committed
            if spot not in self.acked and spot not in snapshot.dead and spot not in snapshot.parked
        ]
        for spot, stays in snapshot.parked.items():
            if stays[-1] and spot not in self.acked and spot not in snapshot.dead:
                early.append(f"{spot} {snapshot.values[spot]!r} was parked and is committed in the retry topic")
        return early

    def settled_and_not_committed(self) -> list[str]:
        """What would be replayed though the sidecar said that it counts: nothing after an orderly stop."""
        snapshot = self.snapshot
        return [
            f"{spot} {snapshot.values[spot]!r} is not committed"
            for spot in self.settled
            if not (snapshot.parked[spot][-1] if spot in snapshot.parked else spot in snapshot.committed)
        ]

    def unaccounted(self) -> list[str]:
        """What is neither acked nor a dead letter, or is what it should not be."""
        problems = []
        for spot, value in self.snapshot.values.items():
            reason = DEADLY.get(kind_of(value))
            letter = self.snapshot.dead.get(spot)
            if letter is None and spot not in self.acked:
                problems.append(f"{spot} {value!r} is lost")
            elif letter is not None and (reason is None or reason not in letter):
                problems.append(f"{spot} {value!r} is a dead letter: {letter}")
            elif reason is not None and spot in self.acked:
                problems.append(f"{spot} {value!r} was acked")
        return problems

    def missing(self, confirmed: set[bytes]) -> set[bytes]:
        """What was published and is not there."""
        return confirmed - set(self.snapshot.values.values())


def _take_snapshot(data: Path) -> EmbeddedSnapshot:
    database = Database(data)
    snapshot = EmbeddedSnapshot()
    for record in database.records(TOPIC):
        snapshot.values[Spot(record.lane, record.position)] = record.value
    over: set[Spot] = set()
    for topic, lane, runs in database.cursors(TOPIC):
        done = (Spot(lane, position) for start, stop in runs for position in range(start, stop))
        (snapshot.committed if topic == TOPIC else over).update(done)
    for record in database.records(f"{TOPIC}.offramp.retry"):
        snapshot.parked[origins.of_parked(headers_of(record))].append(Spot(record.lane, record.position) in over)
    for record in database.records(f"{TOPIC}.offramp.dead"):
        told = headers_of(record)
        snapshot.dead[origins.of_letter(told)] = told["offramp-reason"]
    return snapshot
