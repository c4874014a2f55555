"""Figures as a table, for a terminal and for markdown."""

from collections.abc import Iterable, Sequence

from benchmarks.rows import Figure
from sidecar.model.text import columns

_HEADS = ("row", "median", "unit", "spread", "of its baseline", "goal", "")


def number(value: float) -> str:
    """Three significant digits."""
    if abs(value) >= 1_000:
        digits = max(0, len(str(int(abs(value)))) - 3)
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def cells(figure: Figure) -> tuple[str, ...]:
    row = figure.row
    compared = figure.of_baseline
    baseline = f"{compared:.2f} of {row.baseline}" if compared is not None else ""
    spread = f"±{figure.spread:.0%}" if len(figure.repeats) > 1 else "once"
    return row.name, number(figure.value), row.unit, spread, baseline, str(row.goal or ""), figure.verdict


def text(figures: Iterable[Figure]) -> str:
    return "\n".join(columns([_HEADS, *map(cells, figures)]))


def markdown(figures: Sequence[Figure]) -> str:
    lines = [_HEADS, ("---",) * len(_HEADS)]
    for figure in figures:
        name, *more = cells(figure)
        baseline = more[3].replace(figure.row.baseline, f"`{figure.row.baseline}`") if figure.row.baseline else ""
        lines.append((f"`{name}`", *more[:3], baseline, *more[4:]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
