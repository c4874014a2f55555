"""A figure, its goal, and how they are printed."""

import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "latest.json"


@dataclass(frozen=True, slots=True)
class Goal:
    value: float
    at_least: bool

    def met_by(self, value: float) -> bool:
        return value >= self.value if self.at_least else value <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.value:,g}"


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    unit: str
    #: the median of the repeats
    value: float
    repeats: tuple[float, ...]
    goal: Goal | None

    @property
    def spread(self) -> float:
        """Half the distance between the extremes, as a share of the median."""
        return (max(self.repeats) - min(self.repeats)) / 2 / self.value if self.value else 0.0

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return "met" if self.goal.met_by(self.value) else "MISSED"


@dataclass(frozen=True, slots=True)
class Benchmark:
    name: str
    unit: str
    measure: Callable[[], float]
    goal: Goal | None = None

    def run(self, repeats: int, progress: Callable[[str], None]) -> Row:
        values = []
        for number in range(1, repeats + 1):
            progress(f"{self.name}: {number} of {repeats}")
            values.append(self.measure())
        return Row(self.name, self.unit, statistics.median(values), tuple(values), self.goal)


def table(rows: Sequence[Row]) -> str:
    cells = [("", "median", "unit", "spread", "goal", "")]
    cells += [
        (row.name, f"{row.value:,.4g}", row.unit, f"±{row.spread:.0%}", str(row.goal or ""), row.verdict)
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def save(rows: Sequence[Row]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"cores": os.cpu_count(), "system": platform.platform(), "python": sys.version.split()[0]}
    versions = {name: version(name) for name in ("offramp-sidecar", "grpcio", "protobuf")}
    found = [{**asdict(row), "spread": row.spread, "verdict": row.verdict} for row in rows]
    RESULTS.write_text(json.dumps({"machine": machine, "versions": versions, "rows": found}, indent=2) + "\n")
