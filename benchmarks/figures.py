"""What came of a row."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.rows import Row


@dataclass(frozen=True, slots=True)
class Figure:
    """A row with its values, one for each turn, and those of its baseline in the same turns."""

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
        """The median of what each turn had as a share of its baseline in that turn."""
        if not self.baseline or not all(self.baseline):
            return None
        return statistics.median(mine / other for mine, other in zip(self.repeats, self.baseline, strict=True))

    @property
    def met(self) -> bool | None:
        """None: there is no goal, or nothing to compare with."""
        goal = self.row.goal
        if goal is None:
            return None
        judged = self.of_baseline if goal.of_baseline else self.value
        return None if judged is None else goal.met_by(judged)

    @property
    def verdict(self) -> str:
        return {None: "", True: "met", False: "MISSED"}[self.met]


def figures_of(rows: Sequence[Row], turns: Sequence[Mapping[str, float]]) -> list[Figure]:
    """From the values by row of each turn."""
    return [
        Figure(
            row,
            [turn[row.name] for turn in turns],
            [turn[row.baseline] for turn in turns] if row.baseline else (),
        )
        for row in rows
    ]
