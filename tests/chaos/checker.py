"""Does a history keep the promises? Pure; shares no code with the sidecar.

Each rule answers what is wrong as sentences. What a rule may rely on: a worker's line is on the disk before the
sidecar hears of it, and all lines carry the time of one clock.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tests.chaos.history import RETRY, TOPIC, History, Letter, Note, Stay, Stored
from tests.e2e.load.journal import Entry, Spot, Word
from tests.e2e.load.kinds import DEADLY, kind_of

#: times that a worker must have been lost with a record before the sidecar may take the record for the reason
_DEATHS = 3
#: what ends a delivery, as far as the worker is concerned
_SAID = frozenset((Word.ACKED, Word.NACKED, Word.REJECTED))
#: problems of one rule that are told; the rest is counted
_TOLD = 5


@dataclass
class Verdict:
    """What came out of a history."""

    #: by rule
    problems: dict[str, list[str]] = field(default_factory=dict)
    #: how much of what there was
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.problems

    def lines(self) -> Iterator[str]:
        for rule, problems in self.problems.items():
            yield f"{rule}: {len(problems)} times"
            yield from (f"  {problem}" for problem in problems[:_TOLD])


def check(history: History) -> Verdict:
    seen = Seen(history)
    verdict = Verdict(counts=seen.counts())
    for rule in RULES:
        if problems := [*rule(seen)]:
            verdict.problems[(rule.__doc__ or "").rstrip(".")] = problems
    return verdict


class Seen:
    """A history, looked up the ways that the rules need."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.records: Mapping[Spot, Stored] = history.stock.records
        #: when a worker first said that it is done with a record
        self.acked: dict[Spot, float] = {}
        self.rejected: dict[Spot, float] = {}
        self.settled: set[Spot] = set()
        #: of each record: all lines that have it, by time
        self.told: dict[Spot, list[tuple[Note, Entry]]] = defaultdict(list)
        for note in history.notes:
            for entry in note.entries:
                self.told[entry.spot].append((note, entry))
                if note.word is Word.ACKED:
                    self.acked.setdefault(entry.spot, note.at)
                elif note.word is Word.REJECTED:
                    self.rejected.setdefault(entry.spot, note.at)
                elif note.word is Word.SETTLED:
                    self.settled.add(entry.spot)
        self.letters: dict[Spot, list[Letter]] = defaultdict(list)
        for letter in history.stock.letters:
            self.letters[letter.spot].append(letter)
        #: where a record waited in the retry topic, oldest first
        self.stays: dict[Spot, list[Stay]] = defaultdict(list)
        for stay in sorted(history.stock.stays):
            self.stays[stay.origin].append(stay)

    def counts(self) -> dict[str, int]:
        takes = [taken for told in self.told.values() for taken in _takes(told)]
        return {
            "records": len(self.records),
            "deliveries": len(takes),
            "again after an ack": sum(self.acked.get(entry.spot, note.at) < note.at for note, entry in takes),
            "dead letters": len(self.letters),
            "dead letters written twice": len(self.history.stock.letters) - len(self.letters),
            "parked": len(self.stays),
            "commits seen": len(self.history.stock.claims),
        }

    def name(self, spot: Spot) -> str:
        stored = self.records.get(spot)
        return f"{spot.lane}/{spot.position} {stored.value if stored else '?'}"

    def story(self, spot: Spot) -> str:
        """All that happened to a record."""
        told = (
            f"{note.at:.3f} {note.writer} {note.word}"
            + (f" attempt {entry.attempt}{' flagged' if entry.possibly_processed else ''}" * (note.word is Word.TOOK))
            for note, entry in self.told[spot]
        )
        return f"{self.name(spot)}: {'; '.join(told) or 'was never delivered'}"


def _takes(told: Iterable[tuple[Note, Entry]]) -> Iterator[tuple[Note, Entry]]:
    return ((note, entry) for note, entry in told if note.word is Word.TOOK)


def is_there(seen: Seen) -> Iterator[str]:
    """What was confirmed to a publisher is in the broker."""
    for spot, value in seen.history.published.items():
        if spot not in seen.records:
            yield f"{spot.lane}/{spot.position} {value} is not there"
        elif seen.records[spot].value != value:
            yield f"{seen.name(spot)} was published as {value}"


def nothing_is_lost(seen: Seen) -> Iterator[str]:
    """Nothing is lost."""
    for spot in seen.records:
        if spot not in seen.acked and spot not in seen.letters:
            yield seen.story(spot)


def settled_before_commit(seen: Seen) -> Iterator[str]:
    """Nothing was committed that was not settled."""
    spots: dict[int, list[Spot]] = defaultdict(list)
    for spot in sorted(seen.records):
        spots[spot.lane].append(spot)
    stays: dict[int, list[Stay]] = defaultdict(list)
    for stay in sorted(seen.history.stock.stays):
        stays[stay.at.lane].append(stay)
    for claim in seen.history.stock.claims:
        if claim.topic == TOPIC:
            for spot in spots[claim.lane]:
                if claim.covers(spot.position) and not (_is_done(seen, spot, claim.at) or seen.stays[spot]):
                    yield f"{seen.story(spot)}; it was committed by {claim.at:.3f}"
        elif claim.topic == RETRY:
            for stay in stays[claim.lane]:
                # One that was parked again later is settled where it was before.
                last = seen.stays[stay.origin][-1] == stay
                if claim.covers(stay.at.position) and last and not _is_done(seen, stay.origin, claim.at):
                    yield f"{seen.story(stay.origin)}; its stay in the retry topic was committed by {claim.at:.3f}"


def _is_done(seen: Seen, spot: Spot, by: float) -> bool:
    never = float("inf")
    if min(seen.acked.get(spot, never), seen.rejected.get(spot, never)) <= by:
        return True
    # One that was given up without a worker's word has that from its letter alone.
    return bool(seen.letters[spot]) and spot not in seen.rejected


def all_is_committed(seen: Seen) -> Iterator[str]:
    """What the sidecars counted is committed in the end."""
    last = {(claim.topic, claim.lane): claim for claim in seen.history.stock.claims}
    for spot in seen.records:
        claim = last.get((TOPIC, spot.lane))
        if claim is None or not claim.covers(spot.position):
            yield f"{seen.story(spot)}; the group would get it again"


def in_order(seen: Seen) -> Iterator[str]:
    """Records come in the order that was chosen."""
    order = seen.history.order
    if order == "none":
        return
    queues: dict[tuple[int, str], list[Spot]] = defaultdict(list)
    name_of: dict[Spot, tuple[int, str]] = {}
    for spot, stored in sorted(seen.records.items()):
        if order == "lane" or stored.key is not None:
            name_of[spot] = (spot.lane, stored.key or "" if order == "key" else "")
            queues[name_of[spot]].append(spot)
    done: set[Spot] = set()
    #: how many of the first of each queue are done: that only grows
    heads: dict[tuple[int, str], int] = defaultdict(int)
    for note in seen.history.notes:
        spots = {entry.spot for entry in note.entries if entry.spot in name_of}
        if note.word is Word.ACKED:
            done |= spots
        elif note.word is Word.TOOK:
            for spot in spots:
                name = name_of[spot]
                queue = queues[name]
                while heads[name] < len(queue) and queue[heads[name]] in done:
                    heads[name] += 1
                for earlier in queue[heads[name] :]:
                    if earlier >= spot:
                        break
                    if earlier not in done and earlier not in spots:
                        yield f"{seen.story(spot)}; but before it comes {seen.story(earlier)}"
                        break
            batch = [entry.spot for entry in note.entries]
            for one, two in pairwise(batch):
                if name_of.get(one) == name_of.get(two) is not None and two < one:
                    yield f"{seen.name(two)} stands after {seen.name(one)} in a batch of {note.writer}"
            # One that ends as a dead letter is done when it was delivered: what comes after it may go.
            done |= spots & seen.letters.keys()


def repeats_are_flagged(seen: Seen) -> Iterator[str]:
    """A record that comes again after an ack, or after an unknown outcome, says so."""
    for spot, told in seen.told.items():
        # What each worker has last said of it.
        open_at: set[str] = set()
        for note, entry in told:
            if note.word is Word.TOOK:
                known = entry.possibly_processed
                if not known and seen.acked.get(spot, note.at) < note.at:
                    yield f"acked before {note.at:.3f}: {seen.story(spot)}"
                elif not known and open_at - {note.writer}:
                    yield f"in somebody's hands before {note.at:.3f}: {seen.story(spot)}"
                open_at.add(note.writer)
            elif note.word in _SAID:
                open_at.discard(note.writer)


def letters_are_complete(seen: Seen) -> Iterator[str]:
    """Dead letters are complete, whole, and only for those that are to be."""
    for spot, stored in seen.records.items():
        reason = DEADLY.get(kind_of(stored.value.encode()))
        letters = seen.letters.get(spot, [])
        if reason is not None and not letters:
            yield f"{seen.story(spot)}; it has no dead letter"
        for letter in letters:
            if (letter.key, letter.value) != stored:
                yield f"{seen.name(spot)} is a dead letter as {letter.key} {letter.value}"
            if reason is not None and reason not in letter.reason:
                yield f"{seen.name(spot)} is a dead letter for {letter.reason!r} instead of {reason}"
            elif reason is None and not ("WORKER_DIED" in letter.reason and _deaths(seen, spot) >= _DEATHS):
                yield f"{seen.story(spot)}; it is a dead letter: {letter.reason}"
    for spot, letters in seen.letters.items():
        if spot not in seen.records:
            yield f"{letters[0].value} is a dead letter of {spot.lane}/{spot.position}, where nothing is"


def _deaths(seen: Seen, spot: Spot) -> int:
    """How often a worker took it and said nothing more."""
    open_ = 0
    for note, _ in seen.told[spot]:
        if note.word is Word.TOOK:
            open_ += 1
        elif note.word in _SAID:
            open_ -= 1
    return open_


def lives_end_as_told(seen: Seen) -> Iterator[str]:
    """No process ends by itself, and none says that something went wrong."""
    for life in seen.history.lives:
        if life.code is None:
            yield f"{life.who}, process {life.pid}, never ended"
        elif not life.expected:
            yield f"{life.who}, process {life.pid}, ended by itself with {life.code}"
    yield from seen.history.complaints


Rule = Callable[[Seen], Iterator[str]]
RULES: tuple[Rule, ...] = (
    is_there,
    nothing_is_lost,
    settled_before_commit,
    all_is_committed,
    in_order,
    repeats_are_flagged,
    letters_are_complete,
    lives_end_as_told,
)
