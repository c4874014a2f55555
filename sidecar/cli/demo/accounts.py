"""Comparing what the broker has with what its clients noted. Pure.

Every order in the broker comes to one end: acked, dead-lettered, parked, or unaccounted for. Beyond that, the two sides
must not contradict each other; each rule below looks for one way in which they could.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sidecar.cli.demo.books import Books, Spot
from sidecar.cli.demo.orders import Kind
from sidecar.cli.demo.plan import Plan
from sidecar.cli.demo.stock import Stock
from sidecar.model.records import Lane, Run
from sidecar.model.run_set import RunSet

#: kinds of orders that must end as dead letters, and no others
_BAD = frozenset((Kind.REFUND, Kind.TORN))


class Way(StrEnum):
    """How an order came to be acked."""

    FIRST = "at the first delivery"
    RETRIED = "after a retry, since a bank did not answer"
    PARKED = "after being parked"
    HALVED = "after their batch was halved to find a torn order"
    DIED = "after their worker was killed"


class Problem(NamedTuple):
    """Records that should not be as they are."""

    lane: Lane
    run: Run
    what: str

    @property
    def records(self) -> int:
        return self.run.stop - self.run.start

    def __str__(self) -> str:
        start, stop = self.run
        return f"{self.lane}/{start}" + (f" to {stop - 1}" if self.records > 1 else "") + f": {self.what}"


@dataclass(frozen=True)
class Accounts:
    """`published` = `acked` + `rejected` + `given_up` + `parked` + `unaccounted`."""

    #: orders that should have been published, and how many different ones there are
    expected: int
    different: int
    published: int
    acked: Mapping[Way, int]
    #: dead letters that a worker rejected, and those that failed alone as often as is allowed
    rejected: int
    given_up: int
    #: they wait in the retry topic
    parked: int
    unaccounted: int
    #: acked twice, and how many of these for the reason that is allowed: a worker died before it could say so
    acked_twice: int
    excused: int
    #: workers that were killed
    died: tuple[str, ...]
    problems: tuple[Problem, ...]

    @property
    def balanced(self) -> bool:
        return not self.problems and not self.unaccounted and self.expected == self.different == self.published


def reckon(plan: Plan, stock: Stock, books: Books) -> Accounts:
    ledger = _Reckoning(plan, stock, books)
    dead = stock.dead.keys()
    rejected = len(dead & books.rejected)
    parked = sum(1 for spot in stock.still_parked - dead if not ledger.is_acked(spot))
    ways = ledger.ways()
    published = sum(map(len, stock.published.values()))
    return Accounts(
        expected=plan.records,
        different=stock.orders,
        published=published,
        acked=ways,
        rejected=rejected,
        given_up=len(dead) - rejected,
        parked=parked,
        unaccounted=published - sum(ways.values()) - len(dead) - parked,
        acked_twice=len(books.repeated),
        excused=sum(1 for spot, names in books.repeated.items() if ledger.may_repeat(spot, names)),
        died=tuple(sorted(books.died)),
        problems=tuple(ledger.problems()),
    )


class _Reckoning:
    def __init__(self, plan: Plan, stock: Stock, books: Books) -> None:
        self._plan = plan
        self._stock = stock
        self._books = books
        #: acked, dead or parked
        self._accounted = {lane: RunSet(books.acked[lane]) for lane in stock.published}
        for lane, position in [*stock.dead, *stock.still_parked]:
            self._accounted.setdefault(lane, RunSet()).add(Run(position, position + 1))

    def is_acked(self, spot: Spot) -> bool:
        lane, position = spot
        return position in self._books.acked[lane]

    def ways(self) -> dict[Way, int]:
        """Of all acked orders, how they came to be. One that took several is counted under the last here."""
        odd = {spot: Way.RETRIED if self._kind(spot) is Kind.FLAKY else Way.HALVED for spot in self._books.nacked}
        for lane, runs in self._books.taken_again.items():
            odd |= {(lane, position): Way.DIED for run in runs for position in range(*run)}
        odd |= dict.fromkeys(self._stock.parked, Way.PARKED)
        counts = Counter(way for spot, way in odd.items() if self.is_acked(spot) and spot not in self._stock.dead)
        acked = sum(len(self._books.acked[lane]) for lane in self._stock.published)
        both = sum(1 for spot in self._stock.dead if self.is_acked(spot))
        counts[Way.FIRST] = acked - both - counts.total()
        return {way: counts[way] for way in Way}

    def may_repeat(self, spot: Spot, names: list[str]) -> bool:
        """Whether an order may have been acked twice: all that did but one were killed, and the last was told so."""
        survivors = [name for name in names if name not in self._books.died]
        return len(survivors) <= 1 and len(set(names)) == len(names) and self._was_taken_again(spot)

    def problems(self) -> Iterator[Problem]:
        """The worst first."""
        yield from self._without_an_end()
        yield from self._broken_promises()
        yield from self._not_committed()
        yield from self._wrong_ends()
        yield from self._repeated()

    def _without_an_end(self) -> Iterator[Problem]:
        for lane, missing in _missing(self._stock.published, self._accounted):
            waits = self._stock.committed[lane].missing(missing)
            for lost in RunSet(waits).missing(missing):
                yield Problem(lane, lost, "lost: committed, but no worker acked it and it is no dead letter")
            for left in waits:
                yield Problem(lane, left, "not settled: the broker would deliver it again")

    def _broken_promises(self) -> Iterator[Problem]:
        for lane, gone in _missing(self._books.promised, self._stock.published):
            yield Problem(lane, gone, "its publisher was told it is on disk, and it is not there")
        for lane, unknown in _missing(self._books.acked, self._stock.published):
            yield Problem(lane, unknown, "a worker acked it, but it was never published")

    def _not_committed(self) -> Iterator[Problem]:
        for lane, again in _missing(self._accounted, self._stock.committed):
            yield Problem(lane, again, "settled, but not committed: it would be delivered again")
        for spot in sorted(self._stock.still_parked):
            if self.is_acked(spot):
                yield _problem(spot, "acked, but still parked: it would be delivered again")

    def _wrong_ends(self) -> Iterator[Problem]:
        for spot, letter in sorted(self._stock.dead.items()):
            kind, tried = self._kind(spot), self._books.nacked[spot] + self._was_taken_again(spot)
            if self.is_acked(spot):
                yield _problem(spot, "a dead letter, but a worker acked it")
            elif kind not in _BAD:
                yield _problem(spot, f"a dead letter ({letter.reason}), but there is nothing wrong with it")
            elif spot not in self._books.rejected and tried < self._plan.attempts:
                yield _problem(spot, f"a dead letter, but workers rejected it never and tried it only {tried} times")
        for spot, kind in sorted(self._stock.kinds.items()):
            if kind in _BAD and self.is_acked(spot) and spot not in self._stock.dead:
                yield _problem(spot, f"acked, but it is {kind} and cannot have been handled")

    def _repeated(self) -> Iterator[Problem]:
        for spot, names in sorted(self._books.repeated.items()):
            if not self.may_repeat(spot, names):
                yield _problem(spot, f"acked {len(names)} times without need, by {', '.join(names)}")

    def _was_taken_again(self, spot: Spot) -> bool:
        lane, position = spot
        return position in self._books.taken_again[lane]

    def _kind(self, spot: Spot) -> Kind:
        return self._stock.kinds.get(spot, Kind.PLAIN)


def _missing(these: Mapping[Lane, RunSet], there: Mapping[Lane, RunSet]) -> Iterator[tuple[Lane, Run]]:
    """What of these is not there."""
    for lane, runs in these.items():
        for run in runs:
            for missing in there.get(lane, RunSet()).missing(run):
                yield lane, missing


def _problem(spot: Spot, what: str) -> Problem:
    lane, position = spot
    return Problem(lane, Run(position, position + 1), what)
