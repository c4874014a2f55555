"""The journals of the workers, held against what Kafka has. Each check says what is wrong as sentences."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.e2e.kafka.stock import Stock
from tests.e2e.load.journal import Entry, Reader, Spot, Word
from tests.e2e.load.kinds import DEADLY, kind_of


class Books:
    def __init__(self) -> None:
        self.acked: set[Spot] = set()
        self.settled: set[Spot] = set()
        self.deliveries = 0
        #: deliveries of a record after a worker had acked it
        self.repeats = 0
        #: those among them that were not flagged
        self.surprises: list[Entry] = []
        #: all of them, by time
        self.entries: list[Entry] = []
        #: which journal they are from, in the same order
        self._from: list[str] = []
        self._readers: dict[Path, Reader] = {}

    def read(self, journals: Iterable[Path]) -> None:
        """Take in what is new."""
        for path in journals:
            self._readers.setdefault(path, Reader(path))
        read = sorted(
            (entry, f"{path.parent.name}/{path.name}") for path, r in self._readers.items() for entry in r.news()
        )
        news = [entry for entry, _ in read]
        self.entries.extend(news)
        self._from.extend(journal for _, journal in read)
        for entry in news:
            if entry.word is Word.ACKED:
                self.acked.add(entry.spot)
            elif entry.word is Word.SETTLED:
                self.settled.add(entry.spot)
            else:
                self.deliveries += 1
                if entry.spot in self.acked:
                    self.repeats += 1
                    if not entry.possibly_processed:
                        self.surprises.append(entry)

    def story(self, spot: Spot) -> str:
        """All that happened to a record, and where its lane was when it was delivered."""
        told = [
            f"{entry.at:.3f} {journal} {entry.word} attempt {entry.attempt} flagged {entry.possibly_processed}"
            for entry, journal in zip(self.entries, self._from, strict=True)
            if entry.spot == spot
        ]
        began: dict[str, tuple[float, int]] = {}
        last: dict[str, int] = {}
        for entry, journal in zip(self.entries, self._from, strict=True):
            if entry.word is Word.TOOK and entry.spot.lane == spot.lane:
                # A worker that goes back is one whose lane was assigned again.
                if entry.spot.position < last.get(journal, -1) - 20 or journal not in last:
                    began[f"{journal} at {entry.at:.3f}"] = (entry.at, entry.spot.position)
                last[journal] = entry.spot.position
        starts = "; ".join(f"{who} from {position}" for who, (_, position) in began.items())
        return f"{spot}: " + "; ".join(told) + f". Its lane was read by {starts}"

    def committed_too_early(self, stock: Stock) -> list[str]:
        """What the group would never get again, though nobody acked it and it is not durably aside."""
        return [
            f"{spot} {stock.records[spot]} is committed"
            for spot in stock.committed
            if spot not in self.acked and spot not in stock.dead and spot not in stock.parked
        ]

    def settled_and_not_committed(self, stock: Stock) -> list[str]:
        """What would be replayed though the sidecar said that it counts: nothing after an orderly stop."""
        return [f"{spot} {stock.records[spot]}" for spot in self.settled - stock.committed - stock.parked]

    def unaccounted(self, stock: Stock) -> list[str]:
        """What is neither acked nor a dead letter, or is what it should not be."""
        problems = []
        for spot, (_, value) in stock.records.items():
            reason, letter = DEADLY.get(kind_of(value)), stock.dead.get(spot)
            if letter is None and spot not in self.acked:
                problems.append(f"{spot} {value!r} is lost")
            elif letter is not None and (reason is None or reason not in letter):
                problems.append(f"{spot} {value!r} is a dead letter: {letter}")
        return problems

    def out_of_order(self, stock: Stock) -> list[str]:
        """Records that were delivered before all earlier ones of their key were acked, or tried and given up."""
        queues: dict[tuple[int, bytes], list[Spot]] = defaultdict(list)
        names: dict[Spot, tuple[int, bytes]] = {}
        for spot, (key, _) in sorted(stock.records.items()):
            names[spot] = (spot.lane, key or b"")
            queues[names[spot]].append(spot)
        done: set[Spot] = set()
        #: how many of the first records of each key are done: that only grows
        heads: dict[tuple[int, bytes], int] = defaultdict(int)
        problems = []
        for batch in _batches(self.entries):
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
                done |= spots & stock.dead.keys()
        return problems


def _batches(entries: list[Entry]) -> Iterable[list[Entry]]:
    """Entries that were written in one line."""
    batch: list[Entry] = []
    for entry in entries:
        if batch and (entry.at, entry.word) != (batch[0].at, batch[0].word):
            yield batch
            batch = []
        batch.append(entry)
    if batch:
        yield batch
