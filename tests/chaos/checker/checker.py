"""Applies the rules to a history.

Each rule yields what is wrong as sentences. What a rule may rely on: a worker's line is on the disk before the
sidecar hears of it, and all lines carry the time of one clock.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.chaos.checker.history import History
from tests.chaos.checker.history_index import HistoryIndex
from tests.chaos.checker.rules import RULES

#: problems of one rule that are listed; the rest is counted
_TOLD = 5


@dataclass
class Verdict:
    """The result of checking a history."""

    #: by rule
    problems: dict[str, list[str]] = field(default_factory=dict)
    #: how many of each kind there were
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.problems

    def lines(self) -> Iterator[str]:
        for rule, problems in self.problems.items():
            yield f"{rule}: {len(problems)} times"
            yield from (f"  {problem}" for problem in problems[:_TOLD])


def check(history: History) -> Verdict:
    index = HistoryIndex(history)
    verdict = Verdict(counts=index.counts())
    for rule in RULES:
        if problems := [*rule(index)]:
            verdict.problems[(rule.__doc__ or "").rstrip(".")] = problems
    return verdict
