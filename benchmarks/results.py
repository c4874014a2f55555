"""The file of results: every row with the machine, the time and the load of its measurement.

A run of some rows replaces only these, so each row carries its own circumstances.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.rows import Figure, Goal, Row

LATEST = Path(__file__).parent / "results" / "latest.json"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Of one run of the benchmarks."""

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
    """Merge figures into the file. `names` are all existing rows, in order; other rows of the file are dropped."""
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


def _from_json(stored: dict[str, Any]) -> Result:
    goal, baseline = stored["goal"], stored["baseline"] or {"row": "", "repeats": ()}
    row = Row(
        stored["name"],
        stored["unit"],
        Goal(goal["value"], goal["at_least"], goal["of_baseline"]) if goal else None,
        baseline["row"],
    )
    circumstances = Circumstances(**{name: stored[name] for name in Circumstances.__slots__})
    return Result(Figure(row, stored["repeats"], baseline["repeats"]), circumstances)
