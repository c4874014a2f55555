"""The card of one subscription: its state, what to do, its charts and figures, and its tables of lanes, workers, dead
letters and parked records."""

from collections.abc import Sequence
from heapq import nlargest

from sidecar.core.failures.dead_letter_topic import DeadLetterEntry
from sidecar.observability.status import LaneStatus, SessionStatus, SubscriptionState, SubscriptionStatus
from sidecar.server.status_page.advice import hint, lag, oldest, todo
from sidecar.server.status_page.charts import Line, bar, chart
from sidecar.server.status_page.dead_letter_feed import DeadLetters
from sidecar.server.status_page.facts import ReasonCount, SubscriptionFacts
from sidecar.server.status_page.format import clock, count, duration, plural, rate, short, size
from sidecar.server.status_page.markup import Child, Html, joined, table, tag, with_code
from sidecar.settings import SubscriptionMode

#: rows of a table of lanes or workers
_MAX_ROWS = 20
#: seconds; a record that is unsettled for less does not make its lane one of the worst
_NOTABLE_AGE = 10.0
#: seconds that records take to settle anyway
_USUAL_AGE = 1.0

_KINDS = {
    SubscriptionState.STARTING: "warn",
    SubscriptionState.RUNNING: "good",
    SubscriptionState.PAUSED: "warn",
    SubscriptionState.PROBING: "bad",
    SubscriptionState.DRAINING: "warn",
    SubscriptionState.FAILED: "bad",
}
_LANE_HEADINGS = (
    ("Lane", False),
    ("To do", True),
    ("Ready", True),
    ("In flight", True),
    ("For a retry", True),
    ("Oldest unsettled", False),
    ("Replayed if killed", True),
    ("Blocked", False),
)
_WORKER_HEADINGS = (
    ("Worker", False),
    ("Batches", True),
    ("Records", True),
    ("Held for", True),
    ("Asks for", True),
    ("Connected", True),
)
_REASON_HEADINGS = (("Reason", False), ("Records", True))
_DEAD_LETTER_HEADINGS = (("Dead letter", False), ("Reason", False), ("When, UTC", False))


def subscription_card(subscription: SubscriptionFacts) -> Html:
    status = subscription.status
    running = status.state is SubscriptionState.RUNNING
    # Probes are sent before an outage is certain.
    suspected = status.state is SubscriptionState.PROBING and not subscription.troubles
    kind = "warn" if suspected or (running and subscription.troubles) else _KINDS[status.state]
    tone = "warn" if running and hint(subscription) else kind
    topics = ", ".join(status.topics[:3]) + (f" and {len(status.topics) - 3} more" if len(status.topics) > 3 else "")
    return tag(
        "section",
        tag(
            "div",
            tag("h2", status.name),
            tag("span", status.state.name.lower(), class_=f"chip {kind}"),
            tag("p", f"{topics} on {status.broker}, group {status.group}, order {status.order}", class_="what"),
            class_="title",
        ),
        tag(
            "div",
            *(tag("p", text, class_="trouble") for _, text in subscription.troubles),
            tag("p", with_code(todo(subscription)), class_="todo"),
            class_=f"state {tone}",
        ),
        *(_with_ranges(subscription) if status.mode == SubscriptionMode.RANGES else _with_leases(subscription)),
        class_="card",
    )


def _with_leases(subscription: SubscriptionFacts) -> list[Html]:
    status = subscription.status
    return [
        _charts(subscription),
        _figures(subscription),
        _lanes(status),
        tag("div", _workers(status), _side_topics(subscription), class_="pair"),
    ]


def _with_ranges(subscription: SubscriptionFacts) -> list[Html]:
    """The reader has its own checkpoint, so nothing is in flight here."""
    reader = subscription.status.reader
    who = _figure("Reader", reader.name, f"attached for {duration(reader.age)}") if reader else None
    return [
        tag(
            "div",
            chart("Read", [Line(subscription.history.rates("delivered"), "good")], rate, "records/s"),
            class_="charts",
        ),
        tag(
            "dl",
            _figure("To do", count(lag(subscription)), "records behind the end, not committed"),
            who or _figure("Reader", "–", "none has attached"),
        ),
        _lanes(subscription.status),
    ]


def _charts(subscription: SubscriptionFacts) -> Html:
    history = subscription.history
    fetched = history.rates("fetched")
    also = tag("span", f"fetched {rate(fetched[-1]) if fetched else '–'}/s", class_="key")
    return tag(
        "div",
        chart("Acked", [Line(history.rates("acked"), "good"), Line(fetched, "other")], rate, "records/s", also),
        chart("Failed", [Line(history.rates("failed"), "bad")], rate, "records/s"),
        chart("In flight", [Line(history.in_flight(), "plain")], short, "records"),
        chart("Time to settle", [Line(history.settle_times(0.95), "plain")], duration, "for 95 %"),
        class_="charts",
    )


def _figures(subscription: SubscriptionFacts) -> Html:
    status = subscription.status
    # Parked records that are due soon wait in memory, too: they are counted once.
    parked = sum(lane.lag for lane in status.lanes if lane.parked and lane.lag > 0)
    waiting = sum(lane.waiting_records for lane in status.lanes if not lane.parked)
    return tag(
        "dl",
        _figure("To do", count(lag(subscription)), "records behind the end, not settled"),
        _figure("In flight", count(status.in_flight_records), f"in {plural(status.leases, 'batch', 'batches')}"),
        _figure("Waiting for a retry", count(waiting), f"and {count(parked)} parked"),
        _figure("Oldest unsettled", duration(oldest(subscription)), "since it was fetched"),
        _figure("Would be replayed", count(status.would_be_replayed), "if it were killed now"),
        _memory(status),
        _budget(subscription),
    )


def _memory(status: SubscriptionStatus) -> Html:
    used, limit = status.buffered_bytes, status.buffered_bytes_limit
    text = f"of {size(limit)}, {plural(status.buffered_records, 'record')}"
    return _figure("In memory", size(used), text, bar(used, limit, f"{size(used)} of {size(limit)} are used"))


def _budget(subscription: SubscriptionFacts) -> Html:
    status, budget = subscription.status, subscription.budget
    limits = [
        f"at most {plural(status.concurrency_limit, 'batch', 'batches')}" if status.concurrency_limit else "",
        "found by trial" if budget.adaptive else "",
        f"at most {short(budget.rate)} records/s" if budget.rate else "",
    ]
    text = ", ".join(filter(None, limits)) or "no limit"
    used = plural(status.leases, "batch", "batches")
    picture = bar(status.leases, status.concurrency_limit, f"{used}, {text}") if status.concurrency_limit else None
    return _figure("Budget", used, text, picture)


def _figure(name: str, value: str, text: str, picture: Html | None = None) -> Html:
    return tag("div", tag("dt", name), tag("dd", tag("b", value), tag("small", text), picture))


def _lanes(status: SubscriptionStatus) -> Html:
    # The retry topic comes last, whatever its name.
    lanes = [lane for lane in status.lanes if not lane.parked]
    lanes += [lane for lane in status.lanes if lane.parked and not _is_empty(lane)]
    if not lanes:
        return tag("div", tag("h3", "Lanes"), tag("p", "No lane is assigned to this sidecar.", class_="none"))
    shown = worst_lanes(lanes)
    empty = len(status.lanes) - len(lanes)
    rest = [
        f"The worst {len(shown)} of {len(lanes):,} lanes." if len(shown) < len(lanes) else "",
        f"{plural(empty, 'lane')} of the retry topic {'is' if empty == 1 else 'are'} empty." if empty else "",
    ]
    more = " ".join(filter(None, rest))
    return tag(
        "div",
        tag("h3", "Lanes"),
        table("What is left to do in each lane, and what holds it up", _LANE_HEADINGS, map(_lane_row, shown)),
        tag("p", more, class_="more") if more else None,
        class_="lanes",
    )


def worst_lanes(lanes: Sequence[LaneStatus]) -> Sequence[LaneStatus]:
    """All lanes in their own order where there is room for all, so that no row moves; otherwise the worst first."""
    return lanes if len(lanes) <= _MAX_ROWS else nlargest(_MAX_ROWS, lanes, key=_badness)


def _badness(lane: LaneStatus) -> tuple[bool, float, int]:
    return bool(lane.held_by), lane.oldest if lane.oldest > _NOTABLE_AGE else 0.0, lane.lag


def _is_empty(lane: LaneStatus) -> bool:
    records = lane.ready_records or lane.in_flight_records or lane.waiting_records
    return not (lane.lag > 0 or records or lane.held_by)


def _lane_row(lane: LaneStatus) -> list[Child]:
    name: Child = f"{lane.topic}/{lane.lane}"
    if lane.parked:
        name = joined((name, tag("small", " parked")))
    return [
        name,
        count(lane.lag),
        count(lane.ready_records),
        count(lane.in_flight_records),
        count(lane.waiting_records),
        _oldest(lane),
        count(lane.would_be_replayed),
        _blocked(lane),
    ]


def _oldest(lane: LaneStatus) -> Child:
    if lane.oldest_position < 0:
        return _nothing()
    holder = f" with {lane.oldest_with}" if lane.oldest_with else ""
    return joined((duration(lane.oldest), tag("small", f" at {lane.oldest_position}{holder}")))


def _blocked(lane: LaneStatus) -> Child:
    reasons = []
    if lane.settled_beyond and lane.oldest_position >= 0 and lane.oldest > _USUAL_AGE:
        done = plural(lane.settled_beyond, "record")
        reasons.append(f"commit behind {lane.oldest_position} since {duration(lane.oldest)}, {done} done beyond it")
    if lane.held_by:
        reasons.append(f"not fetched: {lane.held_by}")
    elif lane.paused:
        reasons.append("not fetched")
    return tag("span", "; ".join(reasons), class_="blocked") if reasons else _nothing()


def _nothing() -> Html:
    return tag("span", "–", class_="none")


def _workers(status: SubscriptionStatus) -> Html:
    sessions = status.sessions
    if not sessions:
        return tag("div", tag("h3", "Workers"), tag("p", "No worker is connected.", class_="none"), class_="workers")
    shown = longest_holding(sessions)
    rest = f"Those {len(shown)} of {len(sessions):,} workers that have held their batches for longest."
    return tag(
        "div",
        tag("h3", "Workers"),
        table("Connected processes, and the batches in their hands", _WORKER_HEADINGS, map(_worker_row, shown)),
        tag("p", rest, class_="more") if len(shown) < len(sessions) else None,
        class_="workers",
    )


def longest_holding(sessions: Sequence[SessionStatus]) -> Sequence[SessionStatus]:
    """All workers where there is room for all; otherwise those that have held a batch for longest."""
    if len(sessions) <= _MAX_ROWS:
        return sessions
    return nlargest(_MAX_ROWS, sessions, key=lambda session: (session.oldest_lease, session.in_flight_records))


def _worker_row(session: SessionStatus) -> list[Child]:
    client = " ".join(filter(None, (session.language, session.library)))
    away = f"lost its connection {duration(session.away)} ago" if session.away else ""
    details = ", ".join(filter(None, (client, f"pid {session.pid}" if session.pid else "", away)))
    return [
        joined((session.name, tag("small", f" {details}") if details else None)),
        count(session.leases),
        count(session.in_flight_records),
        duration(session.oldest_lease) if session.leases else _nothing(),
        count(session.credit_batches),
        duration(session.age),
    ]


def _side_topics(subscription: SubscriptionFacts) -> Html:
    counters = subscription.status.counters
    return tag(
        "div",
        tag("h3", "Dead letters"),
        _reasons("dead-lettered", counters.dead_lettered, subscription.dead_for),
        _newest(subscription.dead_letters, subscription.dead_letter_topic),
        tag("h3", "Parked"),
        _reasons("parked", counters.parked, subscription.parked_for),
        class_="aside",
    )


def _reasons(what: str, total: int, reasons: Sequence[ReasonCount]) -> Html:
    if not total and not reasons:
        return tag("p", f"Nothing was {what} since the start.", class_="none")
    rows = [(tag("span", reason, class_="reason"), count(records)) for reason, records in reasons]
    caption = f"{plural(total, 'record')} {'was' if total == 1 else 'were'} {what} since the start"
    return table(caption, _REASON_HEADINGS, rows)


def _newest(found: DeadLetters, topic: str) -> Html:
    if not found.at:
        return tag("p", f"{topic} has not been read yet.", class_="more")
    when = f"read at {clock(found.at)}"
    if found.trouble:
        return tag("p", f"{topic} could not be read: {found.trouble} ({when})", class_="more")
    if not found.newest:
        return tag("p", f"{topic} is empty ({when}).", class_="more")
    total = f" of {plural(found.total, 'record')}" if found.total >= 0 else ""
    return tag(
        "details",
        tag("summary", f"The newest {len(found.newest)}{total} in {topic}, {when}"),
        table(f"Newest dead letters in {topic}", _DEAD_LETTER_HEADINGS, map(_dead_letter_row, found.newest)),
    )


def _dead_letter_row(entry: DeadLetterEntry) -> list[Child]:
    attempts = plural(entry.attempts, "attempt")
    by = f", {entry.worker}" if entry.worker else ""
    return [
        entry.id,
        joined((tag("span", entry.reason[:300], class_="reason"), tag("small", f" {attempts}{by}"))),
        clock(entry.dead_lettered_ms / 1000, date=True),
    ]
