"""What is shown of the demo: a screen on a terminal, lines of text elsewhere."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from offramp.v1.admin_pb2 import SessionStatus
from sidecar.cli.demo.plan import Plan
from sidecar.cli.demo.snapshot import LaneSnapshot, Snapshot
from sidecar.cli.terminal import Ink, Screen, View
from sidecar.model.text import fit, short

#: seconds between two progress lines where there is no terminal
_PROGRESS_INTERVAL = 3.0
#: terminal widths from which a lane shows more, and from which four workers instead of two are side by side
_WIDE, _VERY_WIDE = 100, 160
#: width of the text after the bar of a lane
_LANE_TEXT, _LANE_TEXT_WIDE = 24, 40
_MIN_BAR = 10
_LEGEND = "█ done   ░ published, not done yet   · still to come"


class Event(NamedTuple):
    """A line about what has just happened."""

    at: float
    text: str

    def __str__(self) -> str:
        return f"{clock(self.at)}  {self.text}"


class Display:
    """A context that shows events and snapshots. This one prints lines."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._began = time.monotonic()
        self._next_progress = _PROGRESS_INTERVAL

    @property
    def ink(self) -> Ink:
        return Ink(enabled=False)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def tell(self, text: str) -> None:
        """Shows what has just happened."""
        print(Event(self.elapsed, text), flush=True)

    def show(self, now: Snapshot) -> None:
        if self.elapsed >= self._next_progress:
            self._next_progress = self.elapsed + _PROGRESS_INTERVAL
            print(f"{clock(self.elapsed)}    ({summary_line(self._plan, now)})", flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class ScreenDisplay(Display):
    """Draws on the terminal's alternate screen, and prints the events when that is left."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._screen = Screen()
        self._events: list[Event] = []
        self._now = Snapshot()

    @property
    def ink(self) -> Ink:
        return self._screen.ink

    def tell(self, text: str) -> None:
        self._events.append(Event(self.elapsed, text))
        self._draw()

    def show(self, now: Snapshot) -> None:
        self._now = now
        self._draw()

    def __enter__(self) -> Self:
        self._screen.__enter__()
        self._draw()
        return self

    def __exit__(self, *error: object) -> None:
        self._screen.__exit__(*error)
        # The demo may end because the terminal is gone.
        with contextlib.suppress(OSError):
            for event in self._events:
                print(event)

    def _draw(self) -> None:
        self._screen.draw(screen_lines(self._plan, self._now, self._events, self.elapsed, self._screen.view))


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def screen_lines(plan: Plan, now: Snapshot, events: Sequence[Event], elapsed: float, view: View) -> list[str]:
    """At most `height` lines, none wider than `width`. If there is no room, the oldest events are left out."""
    lines = [_title(plan, elapsed, view), view.ink.dim(fit(_LEGEND, view.width))]
    lines += [_lane(plan, lane, view) for lane in now.lanes]
    lines += ["", *_figures(now, view), "", *_workers(plan, now, view)]
    lines += [view.ink.red(fit(f"! {trouble}", view.width)) for trouble in now.trouble]
    lines += [""]
    room = max(1, view.height - len(lines))
    latest = len(events) - 1
    for index, event in [*enumerate(events)][-room:]:
        line = fit(str(event), view.width)
        lines.append(view.ink.bold(line) if index == latest else line)
    return lines[: view.height]


def summary_line(plan: Plan, now: Snapshot) -> str:
    """A snapshot in one line, for output that is not a terminal."""
    slow = now.lanes[plan.slow_lane].behind if now.lanes else 0
    return (
        f"{now.done:,} of {plan.records:,} done, {now.rate_out:,.0f} acked/s, "
        f"{now.in_flight:,} in flight, {now.redelivered:,} redelivered, {now.parked_now:,} parked, "
        f"{now.dead_lettered:,} dead-lettered, lane {plan.slow_lane} {slow:,} behind"
    )


def _title(plan: Plan, elapsed: float, view: View) -> str:
    left = f"Offramp demo: {plan.records:,} orders, {plan.lanes} lanes, {plan.workers} workers, one sidecar"
    return view.ink.bold(fit(left.ljust(view.width - len(clock(elapsed))) + clock(elapsed), view.width))


def _lane(plan: Plan, lane: LaneSnapshot, view: View) -> str:
    wide = view.width >= _WIDE
    slow = lane.number == plan.slow_lane
    name = f"lane {lane.number:<3}"
    behind = f"{lane.behind:>7,} behind" if lane.behind else "      up to date" if lane.done else ""
    text = " " + f"{behind:<14}" + (f"{lane.in_flight:>6,} in flight" if wide else "") + ("  slow" if slow else "")
    width = max(_MIN_BAR, view.width - len(name) - (_LANE_TEXT_WIDE if wide else _LANE_TEXT))
    per_column = plan.records / plan.lanes / width
    done = min(width, int(lane.done / per_column))
    published = min(width, max(done, round(lane.published / per_column)))
    paint = view.ink.yellow if slow else view.ink.green
    bar = paint("█" * done + "░" * (published - done)) + view.ink.dim("·" * (width - published))
    return name + bar + fit(text, max(0, view.width - len(name) - width))


def _figures(now: Snapshot, view: View) -> Iterator[str]:
    figures = (
        (now.rate_in, "published/s"),
        (now.rate_out, "acked/s"),
        (now.in_flight, "in flight"),
        (now.redelivered, "redelivered"),
        (now.parked_now, f"parked, of {now.parked:,}" if now.parked else "parked"),
        (now.dead_lettered, "dead-lettered"),
    )
    column = min(30, view.width // 3)
    for row in (figures[:3], figures[3:]):
        line = ""
        for number, words in row:
            value, label = f"{number:>7,.0f} ", fit(words, column - 9).ljust(column - 8)
            line += view.ink.bold(value) + label if number else view.ink.dim(value + label)
        yield line


def _workers(plan: Plan, now: Snapshot, view: View) -> Iterator[str]:
    columns = 4 if view.width >= _VERY_WIDE else 2
    width = view.width // columns
    places = {worker.name: _worker(worker, width, view.ink) for worker in now.workers}
    places |= {name: view.ink.red(fit(f"{name:<10} killed with -9", width).ljust(width)) for name in now.killed}
    cells = [places[name] for name in sorted(places, key=lambda name: (len(name.rstrip("b")), name))]
    cells += [view.ink.dim(fit("no worker yet", width).ljust(width))] * (plan.workers - len(cells))
    for start in range(0, len(cells), columns):
        yield "".join(cells[start : start + columns])


def _worker(worker: SessionStatus, width: int, ink: Ink) -> str:
    text = fit(f"{worker.name:<10}{short(worker.in_flight_records):>5} in hand ", width)
    squares = min(worker.leases, max(0, width - len(text) - 1))
    return text + ink.cyan("▪" * squares) + " " * (width - len(text) - squares)
