"""What is measured: rows with their goals, and the benchmarks that give their values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.stage import Stage


@dataclass(frozen=True, slots=True)
class Goal:
    """Made by `at_least` and `at_most`."""

    value: float
    at_least: bool
    #: it is about the row's share of its baseline, not about its value
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
    """Something that is measured in one go, and gives a value for each of its rows.

    `measure` may start servers and fill topics by way of the stage, which keeps them for the next turn. It raises
    `tests.servers.tools.Missing` if it needs something that is not installed: then its rows are skipped.
    """

    name: str
    #: what is done, in a sentence
    about: str
    rows: tuple[Row, ...]
    measure: Callable[["Stage"], Mapping[str, float]]
    #: seconds that a turn takes on two quiet cores
    seconds: float
    #: seconds that the first turn takes more, for servers and topics
    preparation: float = 0.0
    #: measured in the first turn only, because it takes long
    once: bool = False
    #: measured only if it is asked for by name, because the whole would take too long with it
    by_name_only: bool = False
