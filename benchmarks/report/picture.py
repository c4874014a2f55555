"""The most important figures as an SVG for light and dark pages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from benchmarks.report.table import number
from benchmarks.results import Result
from benchmarks.rows import Figure


class Bar(NamedTuple):
    label: str
    row: str
    #: a baseline rather than Offramp
    other: bool = False


class Panel(NamedTuple):
    title: str
    bars: Sequence[Bar]
    #: shows ratios to the baselines instead of values
    shares: bool = False
    #: the end of the scale, if not the longest bar
    full: float = 0.0


PANELS = (
    Panel(
        "Kafka, 100 B: CPU seconds for a million records",
        (
            Bar("direct consumer", "kafka-throughput-100b-direct-cpu", other=True),
            Bar("batches of 500", "kafka-throughput-100b-batch-500-cpu"),
            Bar("batches of 100", "kafka-throughput-100b-batch-100-cpu"),
        ),
    ),
    Panel(
        "Kafka: rate, as a share of a direct consumer's",
        (
            Bar("100 B", "kafka-throughput-100b-batch-500"),
            Bar("1 KiB", "kafka-throughput-1k-batch-500"),
            Bar("100 KiB", "kafka-throughput-100k-batch-500"),
        ),
        shares=True,
        full=1.0,
    ),
    Panel(
        "Kafka at 1,000 a second: milliseconds that are added",
        (
            Bar("p50", "kafka-latency-p50-added"),
            Bar("p99", "kafka-latency-p99-added"),
            Bar("p99.9", "kafka-latency-p999-added"),
        ),
    ),
    Panel(
        "39 lanes: records a second",
        (Bar("none is slow", "slow-lane-none", other=True), Bar("the 40th is slow", "slow-lane-others")),
    ),
    Panel(
        "Batches of one, 5 ms each: of the ideal",
        (
            Bar("1 worker", "dispatch-1"),
            Bar("16 workers", "dispatch-16"),
            Bar("64 workers", "dispatch-64"),
            Bar("256 workers", "dispatch-256"),
        ),
        full=1.0,
    ),
    Panel(
        "PHP processes of 5 ms on one lane: of the ideal",
        (
            Bar("1", "php-processes-1"),
            Bar("4", "php-processes-4"),
            Bar("16", "php-processes-16"),
            Bar("16, prefetching", "php-processes-16-prefetch-7"),
        ),
        full=1.0,
    ),
    Panel(
        "A handler that takes batches: records a second",
        (Bar("one at a time", "batch-handler-1", other=True), Bar("500 at a time", "batch-handler-500")),
    ),
    Panel(
        "After a stall: seconds until the backlog is gone",
        (
            Bar("no budget", "recovery-clear-plain", other=True),
            Bar("budget.adaptive", "recovery-clear-budget"),
        ),
    ),
)

_WIDTH, _MARGIN, _GAP = 880, 28, 36
_COLUMN = (_WIDTH - 2 * _MARGIN - _GAP) // 2
#: heights in a panel: above its bars, of a bar, below the bars; start and maximal length of bars
_ABOVE, _LINE, _BELOW = 30, 24, 26
_START = 122
_LENGTH = _COLUMN - _START - 60
_HEAD, _FOOT = 66, 44

_STYLE = """
  svg { --ink: #1f2328; --soft: #59636e; --bar: #2f6fab; --other: #b6bec7; --rail: #eef1f4; --goal: #bf5b04;
    --page: #ffffff }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e6edf3; --soft: #9198a1; --bar: #4f9be0; --other: #4c5560; --rail: #1c222a; --goal: #f0a050;
      --page: #0d1117 }
  }
  text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink) }
  .title { font-size: 20px; font-weight: 600 }
  .panel { font-weight: 600 }
  .soft { fill: var(--soft) }
  .page { fill: var(--page) }
  .rail { fill: var(--rail) }
  .bar { fill: var(--bar) }
  .other { fill: var(--other) }
  .goal { stroke: var(--goal); stroke-width: 2 }
"""


def write(path: Path, results: Sequence[Result]) -> None:
    path.write_text(svg(results))


def svg(results: Sequence[Result]) -> str:
    """Leaves out panels with rows that were not measured."""
    found = {result.figure.row.name: result.figure for result in results}
    panels = [panel for panel in PANELS if all(bar.row in found for bar in panel.bars)]
    drawn, y = [], _HEAD
    for left, right in zip(panels[::2], [*panels[1::2], None], strict=False):
        pair = [panel for panel in (left, right) if panel]
        drawn += [_panel(panel, found, _MARGIN + at * (_COLUMN + _GAP), y) for at, panel in enumerate(pair)]
        y += _ABOVE + _LINE * max(len(panel.bars) for panel in pair) + _BELOW
    height = y + _FOOT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="Benchmarks of Offramp">\n<style>{_STYLE}</style>\n'
        f'<rect class="page" width="{_WIDTH}" height="{height}" rx="8"/>\n'
        f"{_text(_MARGIN, 40, 'Offramp, measured', 'title')}\n" + "".join(drawn) + f"{_foot(results, height)}</svg>\n"
    )


def _panel(panel: Panel, found: Mapping[str, Figure], x: int, y: int) -> str:
    values = [_value(panel, found[bar.row]) for bar in panel.bars]
    goals = [_goal(panel, found[bar.row]) for bar in panel.bars]
    full = max(panel.full, *values, *(goal for goal in goals if goal is not None)) or 1.0
    parts = [_text(x, y + 12, panel.title, "panel")]
    for at, (bar, value, goal) in enumerate(zip(panel.bars, values, goals, strict=True)):
        top = y + _ABOVE + at * _LINE
        length = max(1.0, _LENGTH * max(0.0, value) / full)
        parts += [
            _text(x, top + 12, bar.label, "soft"),
            f'<rect class="rail" x="{x + _START}" y="{top}" width="{_LENGTH}" height="15" rx="3"/>',
            f'<rect class="{"other" if bar.other else "bar"}" x="{x + _START}" y="{top}" width="{length:.1f}" '
            'height="15" rx="3"/>',
            _text(x + _START + _LENGTH + 8, top + 12, number(value)),
        ]
        if goal is not None:
            line = x + _START + _LENGTH * goal / full
            parts.append(f'<line class="goal" x1="{line:.1f}" x2="{line:.1f}" y1="{top - 3}" y2="{top + 18}"/>')
    return "\n".join(parts) + "\n"


def _value(panel: Panel, figure: Figure) -> float:
    return (figure.of_baseline or 0.0) if panel.shares else figure.value


def _goal(panel: Panel, figure: Figure) -> float | None:
    """The goal on the scale of the panel."""
    goal = figure.row.goal
    if goal is None:
        return None
    if goal.of_baseline and not panel.shares:
        return goal.value * figure.value / figure.of_baseline if figure.of_baseline else None
    return goal.value


def _foot(results: Sequence[Result], height: int) -> str:
    if not results:
        return ""
    last = max((result.circumstances for result in results), key=lambda one: one.ended)
    where = f"{last.machine['cores']} cores, {last.machine['processor']}, {last.ended[:10]}"
    load = f"load average {last.load_at_start:g} to {last.load_at_end:g}"
    said = ("Medians. Blue is Offramp, grey what it is compared with, a line a goal.", f"{where}, {load}.")
    return "".join(_text(_MARGIN, height - 36 + 18 * at, line, "soft") + "\n" for at, line in enumerate(said))


def _text(x: float, y: float, said: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{named}>{escape(said)}</text>'
