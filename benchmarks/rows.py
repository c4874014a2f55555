"""The plain types: benchmarks, their rows and goals, and the figures measured for a row."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.environment import BenchmarkEnvironment


@dataclass(frozen=True, slots=True)
class Goal:
    """Made by `at_least` and `at_most`."""

    value: float
    at_least: bool
    #: compares the ratio to the baseline, not the value
    of_baseline: bool = False

    def met_by(self, value: float) -> bool:
        return value >= self.value if self.at_least else value <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.value:,g}{' of it' if self.of_baseline else ''}"


def at_least(value: float, *, of_baseline: bool = False) -> Goal:
    return Goal(value, True, of_baseline)


def at_most(value: float, *, of_baseline: bool = False) -> Goal:
    return Goal(value, False, of_baseline)


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    unit: str
    goal: Goal | None = None
    #: the row of the same benchmark that this one is compared with, turn by turn
    baseline: str = ""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One measurement, which returns a value for each of its rows.

    `measure` may start servers and fill topics through the environment, which keeps them for the next turn. It raises
    `tests.servers.tools.Missing` if something that it needs is not installed; its rows are then skipped.
    """

    name: str
    #: what is measured, in one sentence
    about: str
    rows: tuple[Row, ...]
    measure: Callable[["BenchmarkEnvironment"], Mapping[str, float]]
    #: seconds that a turn takes on two quiet cores
    seconds: float
    #: additional seconds of the first turn, for servers and topics
    preparation: float = 0.0
    #: measured in the first turn only, because it takes long
    once: bool = False
    #: measured only if it is named, because a whole run would take too long with it
    by_name_only: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A row with its values, one per turn, and those of its baseline in the same turns."""

    row: Row
    repeats: Sequence[float]
    baseline: Sequence[float] = ()

    @property
    def value(self) -> float:
        return statistics.median(self.repeats)

    @property
    def spread(self) -> float:
        """Half the distance between the extremes, as a share of the median."""
        return (max(self.repeats) - min(self.repeats)) / 2 / abs(self.value) if self.value else 0.0

    @property
    def of_baseline(self) -> float | None:
        """The median over the turns of the ratio to the baseline in the same turn."""
        if not self.baseline or not all(self.baseline):
            return None
        return statistics.median(mine / other for mine, other in zip(self.repeats, self.baseline, strict=True))

    @property
    def met(self) -> bool | None:
        """None without a goal, or without values to compare with."""
        goal = self.row.goal
        if goal is None:
            return None
        judged = self.of_baseline if goal.of_baseline else self.value
        return None if judged is None else goal.met_by(judged)

    @property
    def verdict(self) -> str:
        return {None: "", True: "met", False: "MISSED"}[self.met]


def figures_of(rows: Sequence[Row], turns: Sequence[Mapping[str, float]]) -> list[Figure]:
    """The figures of a benchmark, from the values of each turn by row."""
    return [
        Figure(
            row,
            [turn[row.name] for turn in turns],
            [turn[row.baseline] for turn in turns] if row.baseline else (),
        )
        for row in rows
    ]
