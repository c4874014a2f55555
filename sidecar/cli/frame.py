"""One picture of `offramp top`: two statuses and the time between them to lines. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from offramp.v1 import admin_pb2
from sidecar.cli.status import RANGES, how_read, lanes_shown, reader_text, state_word, troubles
from sidecar.model.text import Ink, age, bar, fit, plural, short

_BAR = 12
#: characters of one fact: three fit beside each other on 80
_CELL, _GAP = 25, "  "
#: what it is called, its counter, and whether an operator would want to know that it moves
_RATES = (
    ("delivered", "delivered", False),
    ("acked", "acked", False),
    ("retried", "redelivered", True),
    ("parked", "parked", True),
    ("dead-lettered", "dead_lettered", True),
)


@dataclass(frozen=True, slots=True)
class View:
    """What to draw on: a screen of this size, with these colours."""

    width: int
    height: int
    ink: Ink


def draw(now: admin_pb2.Status, before: admin_pb2.Status | None, view: View, scroll: int = 0) -> list[str]:
    """At most `height` lines, none wider than `width`. Rates need a status from before."""
    lines = [*_head(now, view), *_body(now, before, view)]
    if len(lines) <= view.height:
        return lines
    # The head stays; the rest moves under it.
    head, body, room = lines[:1], lines[1:], max(view.height - 2, 0)
    scroll = min(max(scroll, 0), len(body) - room)
    below = len(body) - room - scroll
    more = f"{below} more lines below, arrow keys move" if below else "end"
    return [*head, *body[scroll : scroll + room], view.ink.dim(fit(more, view.width))]


def summary(now: admin_pb2.Status, before: admin_pb2.Status | None) -> Iterator[str]:
    """A line for each subscription, for where there is no screen."""
    seconds = _seconds_between(now, before)
    for s in now.subscriptions:
        earlier = _earlier(s, before)
        if s.mode == RANGES:
            yield _ranges_summary(s, earlier, seconds)
            continue
        rates = " ".join(f"{name}={short(_rate(s, earlier, counter, seconds))}/s" for name, counter, _ in _RATES)
        yield (
            f"{s.name} {state_word(s)} {rates} in_flight={s.in_flight_records} waiting={s.waiting_records} "
            f"lag={_total_lag(s)} workers={len(s.sessions)} would_be_replayed={s.would_be_replayed}"
        )
    for trouble in troubles(now):
        yield f"! {trouble}"


def _ranges_summary(
    s: admin_pb2.SubscriptionStatus, earlier: admin_pb2.SubscriptionStatus | None, seconds: float
) -> str:
    rate = short(_rate(s, earlier, "delivered", seconds))
    reader = s.reader.name or "unnamed" if s.HasField("reader") else "none"
    return f"{s.name} {state_word(s)} read={rate}/s lag={_total_lag(s)} commits={s.counters.commits} reader={reader}"


def _head(now: admin_pb2.Status, view: View) -> list[str]:
    workers = sum(len(s.sessions) for s in now.subscriptions)
    left = f"offramp {now.version}  up {age(now.uptime_ms)}  {plural(workers, 'worker')}"
    left += "  DRAINING" if now.draining else ""
    right = "q quits"
    gap = " " * max(view.width - len(left) - len(right), 1)
    return [view.ink.bold(fit(left + gap + right, view.width))]


def _body(now: admin_pb2.Status, before: admin_pb2.Status | None, view: View) -> Iterator[str]:
    seconds = _seconds_between(now, before)
    for trouble in troubles(now):
        yield view.ink.red(fit(f"! {trouble}", view.width))
    for s in now.subscriptions:
        yield ""
        yield from _subscription(s, _earlier(s, before), seconds, view)
    if not now.subscriptions:
        yield ""
        yield "no subscriptions"


def _subscription(
    s: admin_pb2.SubscriptionStatus, earlier: admin_pb2.SubscriptionStatus | None, seconds: float, view: View
) -> Iterator[str]:
    ink = view.ink
    state = state_word(s)
    name = fit(s.name, view.width // 3)
    rest = fit(f"  {', '.join(s.topics)} on {s.broker}, {how_read(s)}", view.width - len(name) - len(state) - 2)
    yield ink.bold(name) + "  " + (ink.green(state) if state == "running" else ink.yellow(state)) + ink.dim(rest)
    if s.mode == RANGES:
        rate = _rate(s, earlier, "delivered", seconds)
        yield from _grid([_rate_cell("read", rate, None, ink), _cell("commits", short(s.counters.commits))], view)
        yield fit(f"reader: {reader_text(s)}", view.width)
    else:
        yield from _leased(s, earlier, seconds, view)
    yield from _lanes(s, view)


def _leased(
    s: admin_pb2.SubscriptionStatus, earlier: admin_pb2.SubscriptionStatus | None, seconds: float, view: View
) -> Iterator[str]:
    ink = view.ink
    rates = {counter: _rate(s, earlier, counter, seconds) for _, counter, _ in _RATES}
    cells = [_rate_cell(label, rates[counter], None, ink) for label, counter, notable in _RATES if not notable]
    cells.append(_cell("in flight", short(s.in_flight_records)))
    cells += [
        _rate_cell(label, rates[counter], getattr(s.counters, counter), ink)
        for label, counter, notable in _RATES
        if notable
    ]
    cells.append(_cell("workers", str(len(s.sessions))))
    cells.append(_cell("waiting for a retry", short(s.waiting_records)))
    cells.append(_cell("oldest unsettled", age(s.oldest_unsettled_ms)))
    cells.append(_cell("would be replayed", short(s.would_be_replayed)))
    cells.append(_cell("memory", _percent(s.buffered_bytes, s.buffered_bytes_limit)))
    if s.concurrency_limit:
        cells.append(_cell("most in flight", plural(s.concurrency_limit, "batch", "batches")))
    yield from _grid(cells, view)


def _grid(cells: Sequence[str], view: View) -> Iterator[str]:
    """In threes, so that what belongs together stands together."""
    fitting = max((view.width + len(_GAP)) // (_CELL + len(_GAP)), 1)
    across = min(fitting, 3) if fitting < 6 else 6
    for start in range(0, len(cells), across):
        yield _GAP.join(cells[start : start + across])


def _lanes(s: admin_pb2.SubscriptionStatus, view: View) -> Iterator[str]:
    if not s.lanes:
        yield view.ink.dim("  no lanes")
        return
    lanes, others = lanes_shown(s)
    names = [f"{lane.topic}/{lane.lane}" for lane in lanes]
    most = max(1, *(lane.lag for lane in s.lanes))
    width = min(max(map(len, [*names, "lane"])), max(view.width - 56, 8))
    head = f"  {'lane':<{width}}  {'lag':>6} {'':{_BAR}}  {'ready':>6} {'flight':>6} {'wait':>6}  held by"
    yield view.ink.dim(fit(head, view.width))
    for name, lane in zip(names, lanes, strict=True):
        lag = short(lane.lag) if lane.lag >= 0 else "?"
        held = lane.held_by or ("paused" if lane.paused else "parked records" if lane.parked else "")
        left = f"  {fit(name, width):<{width}}  {lag:>6} "
        right = (
            f"  {short(lane.ready_records):>6} {short(lane.in_flight_records):>6} {short(lane.waiting_records):>6}  "
        )
        room = view.width - len(left) - len(right) - _BAR
        if room < 0:
            yield fit(left + bar(lane.lag / most, _BAR) + right, view.width)
        else:
            yield left + view.ink.cyan(bar(lane.lag / most, _BAR)) + right + view.ink.dim(fit(held, room))
    if others:
        yield view.ink.dim(fit(f"  {others}", view.width))


def _rate_cell(label: str, rate: float, total: int | None, ink: Ink) -> str:
    """A rate; one that an operator would want to know of comes with its total, and in yellow while it moves."""
    value = f"{short(rate)}/s" + (f" ({short(total)})" if total is not None else "")
    paint = ink.dim if not rate else ink.cyan if total is None else ink.yellow
    return _cell(label, value, paint)


def _cell(label: str, value: str, paint: Callable[[str], str] = str) -> str:
    value = fit(value, _CELL - len(label) - 1)
    return label + " " * (_CELL - len(label) - len(value)) + paint(value)


def _earlier(s: admin_pb2.SubscriptionStatus, before: admin_pb2.Status | None) -> admin_pb2.SubscriptionStatus | None:
    return next((one for one in before.subscriptions if one.name == s.name), None) if before is not None else None


def _seconds_between(now: admin_pb2.Status, before: admin_pb2.Status | None) -> float:
    # Measured by the sidecar itself: what the way here took does not blur the rates. A restart shows as no time.
    if before is None or before.boot != now.boot:
        return 0.0
    return (now.uptime_ms - before.uptime_ms) / 1000


def _rate(
    s: admin_pb2.SubscriptionStatus, earlier: admin_pb2.SubscriptionStatus | None, counter: str, seconds: float
) -> float:
    if earlier is None or seconds <= 0:
        return 0.0
    moved: int = getattr(s.counters, counter) - getattr(earlier.counters, counter)
    return max(moved, 0) / seconds


def _total_lag(s: admin_pb2.SubscriptionStatus) -> int:
    return sum(lane.lag for lane in s.lanes if lane.lag > 0 and not lane.parked)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "-"
