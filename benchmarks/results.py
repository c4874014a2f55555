"""The file of results: every row with where, when and under which load it was measured.

A run of some rows replaces these rows and leaves the others as they are: each row stands for itself.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from benchmarks.rows import Goal, Row

LATEST = Path(__file__).parent / "results" / "latest.json"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Of one run."""

    began: str
    ended: str
    #: load average of the last minute
    load_at_start: float
    load_at_end: float
    machine: dict[str, object]
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Result:
    figure: Figure
    circumstances: Circumstances


def write(path: Path, names: Sequence[str], figures: Iterable[Figure], circumstances: Circumstances) -> None:
    """`names` are all rows that there are, in order: what is no row any more is forgotten."""
    found = {result.figure.row.name: result for result in (read(path) if path.exists() else [])}
    found |= {figure.row.name: Result(figure, circumstances) for figure in figures}
    rows = [_to_json(found[name]) for name in names if name in found]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"rows": rows}, indent=1, ensure_ascii=False) + "\n")


def read(path: Path) -> list[Result]:
    return [_from_json(row) for row in json.loads(path.read_text())["rows"]]


def _to_json(result: Result) -> dict[str, Any]:
    figure = result.figure
    row = figure.row
    return {
        "name": row.name,
        "value": figure.value,
        "unit": row.unit,
        "goal": {**asdict(row.goal), "met": figure.met} if row.goal else None,
        "baseline": {"row": row.baseline, "repeats": list(figure.baseline), "share": figure.of_baseline}
        if row.baseline
        else None,
        "repeats": list(figure.repeats),
        "spread": figure.spread,
        **asdict(result.circumstances),
    }


def _from_json(told: dict[str, Any]) -> Result:
    goal, baseline = told["goal"], told["baseline"] or {"row": "", "repeats": ()}
    row = Row(
        told["name"],
        told["unit"],
        Goal(goal["value"], goal["at_least"], goal["of_baseline"]) if goal else None,
        baseline["row"],
    )
    circumstances = Circumstances(**{name: told[name] for name in Circumstances.__slots__})
    return Result(Figure(row, told["repeats"], baseline["repeats"]), circumstances)
