"""What the processes of the demo noted themselves, all journals taken together."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from sidecar.cli.demo.journal import Entry, Reader, Word
from sidecar.model.records import Lane, Run
from sidecar.model.run_set import RunSet

#: where a record is, which names it for ever
Spot = tuple[Lane, int]
Lanes = defaultdict[Lane, RunSet]


class Books:
    def __init__(self) -> None:
        #: what publishers were told to be on disk
        self.promised = Lanes(RunSet)
        self.acked = Lanes(RunSet)
        #: taken though it may have been done before: a worker had died with it, or it was parked
        self.taken_again = Lanes(RunSet)
        #: how often
        self.nacked: Counter[Spot] = Counter()
        self.rejected: set[Spot] = set()
        #: records acked more than once, and by whom; a name stands there as often as it acked
        self.repeated: dict[Spot, list[str]] = {}
        #: whoever did not say farewell
        self.died: set[str] = set()
        self._acked_by: dict[str, Lanes] = {}

    def add(self, name: str, entry: Entry) -> None:
        """An entry of the journal of that name."""
        match entry.word:
            case Word.PUBLISHED:
                _add(self.promised, entry)
            case Word.TOOK_AGAIN:
                _add(self.taken_again, entry)
            case Word.ACKED:
                self._ack(name, entry)
            case Word.NACKED:
                self.nacked.update(_spots(entry))
            case Word.REJECTED:
                self.rejected.update(_spots(entry))
            case Word.TOOK | Word.LEFT:
                pass

    def _ack(self, name: str, entry: Entry) -> None:
        for run in entry.runs:
            for position in _common(self.acked[entry.lane], run):
                spot = entry.lane, position
                self.repeated.setdefault(spot, [*self._ackers(spot)]).append(name)
        _add(self.acked, entry)
        _add(self._acked_by.setdefault(name, Lanes(RunSet)), entry)

    def _ackers(self, spot: Spot) -> Iterator[str]:
        lane, position = spot
        return (name for name, lanes in self._acked_by.items() if position in lanes[lane])


def read_books(journals: Path) -> Books:
    books = Books()
    for path in sorted(journals.glob("*.log")):
        entries = [*Reader(path).news()]
        if not entries or entries[-1].word is not Word.LEFT:
            books.died.add(path.stem)
        for entry in entries:
            books.add(path.stem, entry)
    return books


def _add(lanes: Lanes, entry: Entry) -> None:
    for run in entry.runs:
        lanes[entry.lane].add(run)


def _spots(entry: Entry) -> Iterator[Spot]:
    return ((entry.lane, position) for run in entry.runs for position in range(*run))


def _common(runs: RunSet, run: Run) -> Iterator[int]:
    new = RunSet(runs.missing(run))
    return (
        (position for position in range(*run) if position not in new) if len(new) < run.stop - run.start else iter(())
    )
