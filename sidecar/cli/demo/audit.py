"""Whether every order of the demo is accounted for, and how.

    python -m sidecar.cli.demo.audit FOLDER      a folder that `offramp demo --keep` kept

The audit compares what the broker has stored with the journals of publishers and workers. It does not ask the sidecar.
Every stored order must be acked, dead-lettered or parked, and the two sides must not contradict each other: each rule
below looks for one kind of contradiction.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from sidecar.cli.demo.broker_state import BrokerState, read_broker_state
from sidecar.cli.demo.journal import JournalSummary, RecordId, read_journals
from sidecar.cli.demo.orders import Kind
from sidecar.cli.demo.plan import Folder, Plan
from sidecar.cli.terminal import Ink
from sidecar.model.records import Lane, Run
from sidecar.model.run_set import RunSet
from sidecar.model.text import plural

_MAX_PROBLEMS_SHOWN = 10
#: the kinds of orders that must end as dead letters; no others may
_MUST_FAIL = frozenset((Kind.REFUND, Kind.TORN))


class AckPath(StrEnum):
    """How an order came to be acked."""

    FIRST = "at the first delivery"
    RETRIED = "after a retry, because a bank did not answer"
    PARKED = "after being parked"
    SPLIT = "after their batch was split to find a torn order"
    WORKER_KILLED = "after their worker was killed"


class Problem(NamedTuple):
    """Records that break a rule."""

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
class AuditResult:
    """`published` = `acked` + `rejected` + `exhausted` + `parked` + `unaccounted`."""

    #: orders to publish, and how many different ones the broker has
    expected: int
    different: int
    published: int
    acked: Mapping[AckPath, int]
    #: dead letters that a worker rejected, and those that used up their attempts alone
    rejected: int
    exhausted: int
    #: still in the retry topic
    parked: int
    unaccounted: int
    #: acked more than once, and how many of these are allowed: a worker died before it could settle
    acked_twice: int
    acked_twice_allowed: int
    killed: tuple[str, ...]
    problems: tuple[Problem, ...]

    @property
    def balanced(self) -> bool:
        return not self.problems and not self.unaccounted and self.expected == self.different == self.published


def audit(plan: Plan, broker: BrokerState, journals: JournalSummary) -> AuditResult:
    """Pure."""
    comparison = _Comparison(plan, broker, journals)
    dead = broker.dead.keys()
    rejected = len(dead & journals.rejected)
    parked = sum(1 for record in broker.still_parked - dead if not comparison.is_acked(record))
    paths = comparison.ack_paths()
    published = sum(map(len, broker.published.values()))
    return AuditResult(
        expected=plan.records,
        different=broker.orders,
        published=published,
        acked=paths,
        rejected=rejected,
        exhausted=len(dead) - rejected,
        parked=parked,
        unaccounted=published - sum(paths.values()) - len(dead) - parked,
        acked_twice=len(journals.repeated),
        acked_twice_allowed=sum(
            1 for record, names in journals.repeated.items() if comparison.may_repeat(record, names)
        ),
        killed=tuple(sorted(journals.killed)),
        problems=tuple(comparison.problems()),
    )


class _Comparison:
    def __init__(self, plan: Plan, broker: BrokerState, journals: JournalSummary) -> None:
        self._plan = plan
        self._broker = broker
        self._journals = journals
        #: acked, dead-lettered or parked
        self._accounted = {lane: RunSet(journals.acked[lane]) for lane in broker.published}
        for lane, position in [*broker.dead, *broker.still_parked]:
            self._accounted.setdefault(lane, RunSet()).add(Run(position, position + 1))

    def is_acked(self, record: RecordId) -> bool:
        lane, position = record
        return position in self._journals.acked[lane]

    def ack_paths(self) -> dict[AckPath, int]:
        """The acked orders by path. An order with several is counted under the last of them here."""
        special = {
            record: AckPath.RETRIED if self._kind(record) is Kind.FLAKY else AckPath.SPLIT
            for record in self._journals.nacked
        }
        for lane, runs in self._journals.received_again.items():
            special |= {(lane, position): AckPath.WORKER_KILLED for run in runs for position in range(*run)}
        special |= dict.fromkeys(self._broker.parked, AckPath.PARKED)
        counts = Counter(
            path for record, path in special.items() if self.is_acked(record) and record not in self._broker.dead
        )
        acked = sum(len(self._journals.acked[lane]) for lane in self._broker.published)
        both = sum(1 for record in self._broker.dead if self.is_acked(record))
        counts[AckPath.FIRST] = acked - both - counts.total()
        return {path: counts[path] for path in AckPath}

    def may_repeat(self, record: RecordId, names: list[str]) -> bool:
        """Whether these workers may all have acked it: all but one were killed, and it was flagged as a repeat."""
        survivors = [name for name in names if name not in self._journals.killed]
        return len(survivors) <= 1 and len(set(names)) == len(names) and self._was_received_again(record)

    def problems(self) -> Iterator[Problem]:
        """Most severe first."""
        yield from self._lost_or_left()
        yield from self._broken_promises()
        yield from self._not_committed()
        yield from self._wrong_ends()
        yield from self._repeated()

    def _lost_or_left(self) -> Iterator[Problem]:
        for lane, missing in _missing(self._broker.published, self._accounted):
            waits = self._broker.committed[lane].missing(missing)
            for lost in RunSet(waits).missing(missing):
                yield Problem(lane, lost, "lost: committed, but no worker acked it and it is no dead letter")
            for left in waits:
                yield Problem(lane, left, "not settled: the broker would deliver it again")

    def _broken_promises(self) -> Iterator[Problem]:
        for lane, gone in _missing(self._journals.confirmed, self._broker.published):
            yield Problem(lane, gone, "confirmed to its publisher, but the broker does not have it")
        for lane, unknown in _missing(self._journals.acked, self._broker.published):
            yield Problem(lane, unknown, "a worker acked it, but it was never published")

    def _not_committed(self) -> Iterator[Problem]:
        for lane, again in _missing(self._accounted, self._broker.committed):
            yield Problem(lane, again, "settled, but not committed: it would be delivered again")
        for record in sorted(self._broker.still_parked):
            if self.is_acked(record):
                yield _problem(record, "acked, but still parked: it would be delivered again")

    def _wrong_ends(self) -> Iterator[Problem]:
        for record, entry in sorted(self._broker.dead.items()):
            kind, tried = self._kind(record), self._journals.nacked[record] + self._was_received_again(record)
            if self.is_acked(record):
                yield _problem(record, "a dead letter, but a worker acked it")
            elif kind not in _MUST_FAIL:
                yield _problem(record, f"a dead letter ({entry.reason}), but nothing is wrong with it")
            elif record not in self._journals.rejected and tried < self._plan.attempts:
                yield _problem(record, f"a dead letter, but no worker rejected it and it was tried only {tried} times")
        for record, kind in sorted(self._broker.kinds.items()):
            if kind in _MUST_FAIL and self.is_acked(record) and record not in self._broker.dead:
                yield _problem(record, f"acked, but it is {kind} and cannot have been processed")

    def _repeated(self) -> Iterator[Problem]:
        for record, names in sorted(self._journals.repeated.items()):
            if not self.may_repeat(record, names):
                yield _problem(record, f"acked {len(names)} times without reason, by {', '.join(names)}")

    def _was_received_again(self, record: RecordId) -> bool:
        lane, position = record
        return position in self._journals.received_again[lane]

    def _kind(self, record: RecordId) -> Kind:
        return self._broker.kinds.get(record, Kind.PLAIN)


def _missing(these: Mapping[Lane, RunSet], there: Mapping[Lane, RunSet]) -> Iterator[tuple[Lane, Run]]:
    """What is in `these` and not in `there`."""
    for lane, runs in these.items():
        for run in runs:
            for missing in there.get(lane, RunSet()).missing(run):
                yield lane, missing


def _problem(record: RecordId, what: str) -> Problem:
    lane, position = record
    return Problem(lane, Run(position, position + 1), what)


def audit_folder(folder: Folder) -> AuditResult:
    """Raises `OfframpError` if the broker cannot be read."""
    return audit(Plan.load(folder), asyncio.run(read_broker_state(folder)), read_journals(folder.journals))


def verdict(result: AuditResult, ink: Ink) -> Iterator[str]:
    """The result as lines for people."""
    yield _row(" ", result.published, "orders were published")
    yield _row("=", sum(result.acked.values()), "acked")
    for path in AckPath:
        if result.acked[path]:
            yield _part(result.acked[path], path)
    yield _row("+", result.rejected + result.exhausted, "dead-lettered")
    yield _part(result.rejected, "rejected by a worker")
    yield _part(result.exhausted, "torn: failed alone until no attempt was left")
    if result.parked:
        yield _row("+", result.parked, "parked, to come back later")
    line = _row("+", result.unaccounted, "unaccounted for")
    yield ink.red(line) if result.unaccounted else line
    yield ""
    yield from _repeated(result)
    yield ""
    if result.balanced:
        yield ink.green(ink.bold("PASS")) + "  Every order is accounted for."
    else:
        yield ink.red(ink.bold("FAIL")) + f"  {_failure(result)}"
    for problem in result.problems[:_MAX_PROBLEMS_SHOWN]:
        yield f"  {problem}"
    if len(result.problems) > _MAX_PROBLEMS_SHOWN:
        yield f"  and {len(result.problems) - _MAX_PROBLEMS_SHOWN:,} more"


def _repeated(result: AuditResult) -> Iterator[str]:
    if not result.acked_twice:
        yield "No order was acked twice."
    if result.acked_twice_allowed:
        yield f"{plural(result.acked_twice_allowed, 'order was', 'orders were')} acked twice, which is allowed:"
        yield f"{', '.join(result.killed)} wrote the ack to its journal and was killed before it could settle."
    if result.acked_twice > result.acked_twice_allowed:
        unexplained = result.acked_twice - result.acked_twice_allowed
        yield f"{plural(unexplained, 'order was', 'orders were')} acked twice without reason."


def _failure(result: AuditResult) -> str:
    if result.problems:
        orders = sum(problem.records for problem in result.problems)
        return f"{plural(orders, 'order is', 'orders are')} not as they should be:"
    return f"{result.expected:,} different orders should be there, and {result.different:,} are."


def _row(sign: str, number: int, words: str) -> str:
    return f" {sign} {number:>9,}  {words}"


def _part(number: int, words: str) -> str:
    return f"{'':14}{number:>9,}  {words}"


if __name__ == "__main__":
    result = audit_folder(Folder(Path(sys.argv[1])))
    print("\n".join(verdict(result, Ink(sys.stdout.isatty()))))
    sys.exit(not result.balanced)
