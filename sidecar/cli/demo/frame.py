"""One moment of the demo as lines for a terminal. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sidecar.cli.demo.picture import LanePicture, Picture, WorkerPicture
from sidecar.cli.demo.plan import Plan
from sidecar.model.text import Ink, fit, short

#: columns from which on a lane shows more, and from which on four workers stand side by side instead of two
_WIDE, _VERY_WIDE = 100, 160
#: columns for what stands right of a lane's bar
_LANE_TEXT, _LANE_TEXT_WIDE = 24, 40
_LEAST_BAR = 10
_LEGEND = "█ done   ░ published, not done yet   · still to come"


class Told(NamedTuple):
    """A line of the story."""

    at: float
    text: str

    def __str__(self) -> str:
        return f"{clock(self.at)}  {self.text}"


class View(NamedTuple):
    """What to draw on."""

    width: int
    height: int
    ink: Ink


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def draw(plan: Plan, picture: Picture, story: Sequence[Told], elapsed: float, view: View) -> list[str]:
    """At most `height` lines, none wider than `width`. Where there is no room, the oldest of the story goes."""
    lines = [_title(plan, elapsed, view), view.ink.dim(fit(_LEGEND, view.width))]
    lines += [_lane(plan, lane, view) for lane in picture.lanes]
    lines += ["", *_figures(picture, view), "", *_workers(plan, picture, view)]
    lines += [view.ink.red(fit(f"! {trouble}", view.width)) for trouble in picture.trouble]
    lines += [""]
    room = max(1, view.height - len(lines))
    latest = len(story) - 1
    for index, told in [*enumerate(story)][-room:]:
        line = fit(str(told), view.width)
        lines.append(view.ink.bold(line) if index == latest else line)
    return lines[: view.height]


def summary(plan: Plan, picture: Picture) -> str:
    """The moment in one line, for where there is no screen."""
    slow = picture.lanes[plan.slow_lane].behind if picture.lanes else 0
    return (
        f"{picture.done:,} of {plan.records:,} done, {picture.rate_out:,.0f} acked/s, "
        f"{picture.in_flight:,} in flight, {picture.redelivered:,} redelivered, {picture.parked_now:,} parked, "
        f"{picture.dead_lettered:,} dead-lettered, lane {plan.slow_lane} {slow:,} behind"
    )


def _title(plan: Plan, elapsed: float, view: View) -> str:
    left = f"Offramp demo: {plan.records:,} orders, {plan.lanes} lanes, {plan.workers} workers, one sidecar"
    return view.ink.bold(fit(left.ljust(view.width - len(clock(elapsed))) + clock(elapsed), view.width))


def _lane(plan: Plan, lane: LanePicture, view: View) -> str:
    wide = view.width >= _WIDE
    slow = lane.number == plan.slow_lane
    name = f"lane {lane.number:<3}"
    behind = f"{lane.behind:>7,} behind" if lane.behind else "      up to date" if lane.done else ""
    text = " " + f"{behind:<14}" + (f"{lane.in_flight:>6,} in flight" if wide else "") + ("  slow" if slow else "")
    width = max(_LEAST_BAR, view.width - len(name) - (_LANE_TEXT_WIDE if wide else _LANE_TEXT))
    per_column = plan.records / plan.lanes / width
    done = min(width, int(lane.done / per_column))
    published = min(width, max(done, round(lane.published / per_column)))
    paint = view.ink.yellow if slow else view.ink.green
    bar = paint("█" * done + "░" * (published - done)) + view.ink.dim("·" * (width - published))
    return name + bar + fit(text, max(0, view.width - len(name) - width))


def _figures(picture: Picture, view: View) -> Iterator[str]:
    figures = (
        (picture.rate_in, "published/s"),
        (picture.rate_out, "acked/s"),
        (picture.in_flight, "in flight"),
        (picture.redelivered, "redelivered"),
        (picture.parked_now, f"parked, of {picture.parked:,}" if picture.parked else "parked"),
        (picture.dead_lettered, "dead-lettered"),
    )
    column = min(30, view.width // 3)
    for row in (figures[:3], figures[3:]):
        line = ""
        for number, words in row:
            value, label = f"{number:>7,.0f} ", fit(words, column - 9).ljust(column - 8)
            line += view.ink.bold(value) + label if number else view.ink.dim(value + label)
        yield line


def _workers(plan: Plan, picture: Picture, view: View) -> Iterator[str]:
    columns = 4 if view.width >= _VERY_WIDE else 2
    width = view.width // columns
    places = {worker.name: _worker(worker, width, view.ink) for worker in picture.workers}
    places |= {name: view.ink.red(fit(f"{name:<10} killed with -9", width).ljust(width)) for name in picture.killed}
    cells = [places[name] for name in sorted(places, key=lambda name: (len(name.rstrip("b")), name))]
    cells += [view.ink.dim(fit("no worker yet", width).ljust(width))] * (plan.workers - len(cells))
    for start in range(0, len(cells), columns):
        yield "".join(cells[start : start + columns])


def _worker(worker: WorkerPicture, width: int, ink: Ink) -> str:
    text = fit(f"{worker.name:<10}{short(worker.records):>5} in hand ", width)
    squares = min(worker.batches, max(0, width - len(text) - 1))
    return text + ink.cyan("▪" * squares) + " " * (width - len(text) - squares)
