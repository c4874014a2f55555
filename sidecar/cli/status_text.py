"""A status as text: the report of `offramp status`, and the screen and the lines of `offramp top`. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from offramp.v1 import admin_pb2
from sidecar.cli.json_lines import enum_word
from sidecar.cli.terminal import Ink, View, bar
from sidecar.model.text import age, columns, fit, plural, short, size

Status = admin_pb2.Status
Subscription = admin_pb2.SubscriptionStatus

_INDENT = "  "
_BAR = 12
#: width of a cell of the screen: three fit on 80 columns
_CELL, _GAP = 25, "  "
#: label, counter, and whether the counter grows only when something goes wrong
_RATES = (
    ("delivered", "delivered", False),
    ("acked", "acked", False),
    ("retried", "redelivered", True),
    ("parked", "parked", True),
    ("dead-lettered", "dead_lettered", True),
)


def report(status: Status, address: str, ink: Ink) -> list[str]:
    """What `offramp status` prints."""
    draining = ", draining" if status.draining else ""
    runtime = "".join(f", {name} {value}" for name, value in sorted(status.runtime.items()))
    lines = [f"offramp {status.version} at {address}, up {age(status.uptime_ms)}{runtime}{draining}"]
    lines += [ink.red(f"! {problem}") for problem in _problems(status)]
    for subscription in status.subscriptions:
        lines += ["", *_report_subscription(subscription, ink)]
    if not status.subscriptions:
        lines += ["", "no subscriptions"]
    for broker in status.brokers:
        facts = "".join(f", {name} {value}" for name, value in sorted(broker.facts.items()))
        lines += ["", f"broker {broker.name}: {broker.type}{facts}"]
    return lines


def _report_subscription(s: Subscription, ink: Ink) -> list[str]:
    state = _state_word(s)
    shown = ink.green(state) if state == "running" else ink.yellow(state)
    lines = [f"{ink.bold(s.name)}: {shown}; {', '.join(s.topics)} on {s.broker}, group {s.group}, {_mode_text(s)}"]
    lines += _report_ranges(s) if s.mode == admin_pb2.MODE_RANGES else _report_leased(s)
    counted = [f"{field.name} {value:,}" for field, value in s.counters.ListFields()]
    lines += ["", _INDENT + "since the start: " + (", ".join(counted).replace("_", " ") or "nothing")]
    return lines


def _report_ranges(s: Subscription) -> list[str]:
    lines = [f"{_INDENT}reader: {_reader_text(s)}" + (f", token {s.reader.token}" if s.HasField("reader") else ""), ""]
    rows = [("lane", "committed", "end", "lag")]
    for lane in s.lanes:
        name = f"{lane.topic}/{lane.lane}"
        rows.append((name, str(lane.committed) if lane.committed >= 0 else "none", _known(lane.end), _known(lane.lag)))
    return lines + [_INDENT + line for line in columns(rows, right=range(1, 4))]


def _report_leased(s: Subscription) -> list[str]:
    facts = [
        f"in flight: {plural(s.in_flight_records, 'record')} in {plural(s.leases, 'lease')}",
        f"waiting for a retry: {s.waiting_records:,}",
        f"oldest unsettled: {age(s.oldest_unsettled_ms)}",
        f"would be replayed: {s.would_be_replayed:,}",
        f"in memory: {s.buffered_records:,}, {size(s.buffered_bytes)} of {size(s.buffered_bytes_limit)}",
    ]
    if s.concurrency_limit:
        facts.append(f"at most in flight: {plural(s.concurrency_limit, 'batch', 'batches')}")
    lines = [_INDENT + fact for fact in facts]
    if s.lanes:
        lines += ["", *(_INDENT + line for line in _report_lanes(s))]
    return [*lines, "", *(_INDENT + line for line in _report_sessions(s))]


def _report_lanes(s: Subscription) -> list[str]:
    rows = [("lane", "committed", "end", "lag", "ready", "in flight", "waiting", "settled ahead", "oldest", "held by")]
    lanes, others = _visible_lanes(s)
    for lane in lanes:
        held = lane.held_by or ("paused" if lane.paused else "")
        rows.append(
            (
                f"{lane.topic}/{lane.lane}" + (" (retry)" if lane.parked else ""),
                str(lane.committed),
                _known(lane.end),
                _known(lane.lag),
                str(lane.ready_records),
                str(lane.in_flight_records),
                str(lane.waiting_records),
                str(lane.settled_beyond),
                _oldest_unsettled(lane),
                held,
            )
        )
    return columns(rows, right=range(1, 8)) + ([others] if others else [])


def _report_sessions(s: Subscription) -> list[str]:
    if not s.sessions:
        return ["no worker is connected"]
    rows = [("worker", "language", "pid", "leases", "in flight", "held for", "credit", "age")]
    for session in s.sessions:
        rows.append(
            (
                session.name or session.session.hex()[:8],
                session.language,
                str(session.pid or "-"),
                str(session.leases),
                str(session.in_flight_records),
                age(session.oldest_lease_ms) if session.leases else "-",
                str(session.credit_batches),
                f"away {age(session.away_ms)}" if session.away_ms else age(session.age_ms),
            )
        )
    return columns(rows, right=range(2, 8))


def _oldest_unsettled(lane: admin_pb2.LaneStatus) -> str:
    """The record that the commit waits for: its age, its position, and the worker that has it."""
    if lane.oldest_position < 0 or not lane.oldest_ms:
        return "-"
    worker = f" with {lane.oldest_with}" if lane.oldest_with else ""
    return f"{age(lane.oldest_ms)} at {lane.oldest_position}{worker}"


def _known(number: int) -> str:
    return str(number) if number >= 0 else "?"


def screen_lines(now: Status, before: Status | None, view: View, scroll: int = 0) -> list[str]:
    """What `offramp top` draws: at most `height` lines, none wider than `width`. Rates need an earlier status."""
    lines = [*_screen_head(now, view), *_screen_body(now, before, view)]
    if len(lines) <= view.height:
        return lines
    # The first line stays; the others scroll under it.
    head, body, room = lines[:1], lines[1:], max(view.height - 2, 0)
    scroll = min(max(scroll, 0), len(body) - room)
    below = len(body) - room - scroll
    more = f"{below} more lines below, arrow keys move" if below else "end"
    return [*head, *body[scroll : scroll + room], view.ink.dim(fit(more, view.width))]


def summary_lines(now: Status, before: Status | None) -> Iterator[str]:
    """A line for each subscription, for output that is not a terminal."""
    for s in now.subscriptions:
        rates = _rates(s, now, before)
        if s.mode == admin_pb2.MODE_RANGES:
            reader = s.reader.name or "unnamed" if s.HasField("reader") else "none"
            yield (
                f"{s.name} {_state_word(s)} read={short(rates['delivered'])}/s lag={_total_lag(s)} "
                f"commits={s.counters.commits} reader={reader}"
            )
        else:
            shown = " ".join(f"{label}={short(rates[counter])}/s" for label, counter, _ in _RATES)
            yield (
                f"{s.name} {_state_word(s)} {shown} in_flight={s.in_flight_records} waiting={s.waiting_records} "
                f"lag={_total_lag(s)} workers={len(s.sessions)} would_be_replayed={s.would_be_replayed}"
            )
    for problem in _problems(now):
        yield f"! {problem}"


def _screen_head(now: Status, view: View) -> list[str]:
    workers = sum(len(s.sessions) for s in now.subscriptions)
    left = f"offramp {now.version}  up {age(now.uptime_ms)}  {plural(workers, 'worker')}"
    left += "  DRAINING" if now.draining else ""
    right = "q quits"
    gap = " " * max(view.width - len(left) - len(right), 1)
    return [view.ink.bold(fit(left + gap + right, view.width))]


def _screen_body(now: Status, before: Status | None, view: View) -> Iterator[str]:
    for problem in _problems(now):
        yield view.ink.red(fit(f"! {problem}", view.width))
    for s in now.subscriptions:
        yield ""
        yield from _screen_subscription(s, _rates(s, now, before), view)
    if not now.subscriptions:
        yield ""
        yield "no subscriptions"


def _screen_subscription(s: Subscription, rates: Mapping[str, float], view: View) -> Iterator[str]:
    ink = view.ink
    state = _state_word(s)
    name = fit(s.name, view.width // 3)
    rest = fit(f"  {', '.join(s.topics)} on {s.broker}, {_mode_text(s)}", view.width - len(name) - len(state) - 2)
    yield ink.bold(name) + "  " + (ink.green(state) if state == "running" else ink.yellow(state)) + ink.dim(rest)
    if s.mode == admin_pb2.MODE_RANGES:
        yield from _grid(
            [_rate_cell("read", rates["delivered"], None, ink), _cell("commits", short(s.counters.commits))], view
        )
        yield fit(f"reader: {_reader_text(s)}", view.width)
    else:
        yield from _screen_leased(s, rates, view)
    yield from _screen_lanes(s, view)


def _screen_leased(s: Subscription, rates: Mapping[str, float], view: View) -> Iterator[str]:
    ink = view.ink
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
    """Three or six cells a line, so that related cells stay together."""
    fitting = max((view.width + len(_GAP)) // (_CELL + len(_GAP)), 1)
    across = min(fitting, 3) if fitting < 6 else 6
    for start in range(0, len(cells), across):
        yield _GAP.join(cells[start : start + across])


def _screen_lanes(s: Subscription, view: View) -> Iterator[str]:
    if not s.lanes:
        yield view.ink.dim("  no lanes")
        return
    lanes, others = _visible_lanes(s)
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
    """A rate. With a total, the counter is one of problems: it is yellow while it grows."""
    value = f"{short(rate)}/s" + (f" ({short(total)})" if total is not None else "")
    paint = ink.dim if not rate else ink.cyan if total is None else ink.yellow
    return _cell(label, value, paint)


def _cell(label: str, value: str, paint: Callable[[str], str] = str) -> str:
    value = fit(value, _CELL - len(label) - 1)
    return label + " " * (_CELL - len(label) - len(value)) + paint(value)


def _rates(s: Subscription, now: Status, before: Status | None) -> dict[str, float]:
    """By counter, a second. All are 0 after a restart, because the counters began again."""
    rates = dict.fromkeys((counter for _, counter, _ in _RATES), 0.0)
    if before is None or before.boot != now.boot:
        return rates
    earlier = next((one for one in before.subscriptions if one.name == s.name), None)
    # By the sidecar's own clock, so that delays on the way here do not distort the rates.
    seconds = (now.uptime_ms - before.uptime_ms) / 1000
    if earlier is not None and seconds > 0:
        for counter in rates:
            rates[counter] = max(getattr(s.counters, counter) - getattr(earlier.counters, counter), 0) / seconds
    return rates


def _total_lag(s: Subscription) -> int:
    return sum(lane.lag for lane in s.lanes if lane.lag > 0 and not lane.parked)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "-"


def _problems(status: Status) -> list[str]:
    """What an operator should look at, one sentence each, as `status` and `top` show it first."""
    found = [*status.trouble]
    found += [f"broker {broker.name}: {broker.trouble}" for broker in status.brokers if broker.trouble]
    return found + [f"{s.name}: {trouble}" for s in status.subscriptions for trouble in s.trouble]


def _state_word(subscription: Subscription) -> str:
    return enum_word(admin_pb2.SubscriptionState.DESCRIPTOR, subscription.state)


def _mode_text(s: Subscription) -> str:
    return "by ranges" if s.mode == admin_pb2.MODE_RANGES else f"order {enum_word(admin_pb2.Order.DESCRIPTOR, s.order)}"


def _reader_text(s: Subscription) -> str:
    """The reader of ranges, in a few words."""
    if not s.HasField("reader"):
        return "none has attached yet"
    return f"{s.reader.name or 'a reader without a name'}, attached {age(s.reader.age_ms)} ago"


def _visible_lanes(subscription: Subscription) -> tuple[list[admin_pb2.LaneStatus], str]:
    """The lanes to list, and a remark on the others: lanes of a retry topic are empty most of the time."""
    shown = [lane for lane in subscription.lanes if not lane.parked or _is_busy(lane)]
    left_out = len(subscription.lanes) - len(shown)
    return shown, f"and {plural(left_out, 'empty lane')} of the retry topic" if left_out else ""


def _is_busy(lane: admin_pb2.LaneStatus) -> bool:
    return bool(lane.lag or lane.ready_records or lane.in_flight_records or lane.waiting_records or lane.held_by)
