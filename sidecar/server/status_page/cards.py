"""One subscription: its state, what to do, what it does, and what it has in hand."""

from sidecar.observability.status import SubscriptionState
from sidecar.server.status_page import aside, lanes, workers
from sidecar.server.status_page.advice import hint, lag, oldest, todo
from sidecar.server.status_page.charts import Line, bar, chart
from sidecar.server.status_page.facts import SubscriptionFacts
from sidecar.server.status_page.markup import Html, tag
from sidecar.server.status_page.overview import coded
from sidecar.server.status_page.words import count, lasting, plural, rate, short, size
from sidecar.settings import SubscriptionMode

_KINDS = {
    SubscriptionState.STARTING: "warn",
    SubscriptionState.RUNNING: "good",
    SubscriptionState.PAUSED: "warn",
    SubscriptionState.PROBING: "bad",
    SubscriptionState.DRAINING: "warn",
    SubscriptionState.FAILED: "bad",
}


def card(subscription: SubscriptionFacts) -> Html:
    status = subscription.status
    running = status.state is SubscriptionState.RUNNING
    kind = "warn" if running and subscription.troubles else _KINDS[status.state]
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
            *(tag("p", what, class_="trouble") for _, what in subscription.troubles),
            tag("p", coded(todo(subscription)), class_="todo"),
            class_=f"state {tone}",
        ),
        *(_ranged(subscription) if status.mode == SubscriptionMode.RANGES else _leased(subscription)),
        class_="card",
    )


def _leased(subscription: SubscriptionFacts) -> list[Html]:
    status = subscription.status
    return [
        _charts(subscription),
        _facts(subscription),
        lanes.section(status),
        tag("div", workers.section(status), aside.section(subscription), class_="pair"),
    ]


def _ranged(subscription: SubscriptionFacts) -> list[Html]:
    """Read by ranges: the reader has its own checkpoint, so that nothing is in flight here."""
    status = subscription.status
    reader = status.reader
    who = _fact("Reader", reader.name, f"attached for {lasting(reader.age)}") if reader else None
    return [
        tag(
            "div",
            chart("Read", [Line(subscription.history.rates("delivered"), "good")], rate, "records/s"),
            class_="charts",
        ),
        tag(
            "dl",
            _fact("To do", count(lag(subscription)), "records behind the end, not committed"),
            who or _fact("Reader", "–", "none has attached"),
        ),
        lanes.section(status),
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
        chart("Time to settle", [Line(history.settle_times(0.95), "plain")], lasting, "for 95 %"),
        class_="charts",
    )


def _facts(subscription: SubscriptionFacts) -> Html:
    status = subscription.status
    # What was parked waits in memory too, shortly before it is due: it is counted once.
    parked = sum(lane.lag for lane in status.lanes if lane.parked and lane.lag > 0)
    waiting = sum(lane.waiting_records for lane in status.lanes if not lane.parked)
    replayed = count(status.would_be_replayed)
    return tag(
        "dl",
        _fact("To do", count(lag(subscription)), "records behind the end, not settled"),
        _fact("In flight", count(status.in_flight_records), f"in {plural(status.leases, 'batch', 'batches')}"),
        _fact("Waiting for a retry", count(waiting), f"and {count(parked)} parked"),
        _fact("Oldest unsettled", lasting(oldest(subscription)), "since it was fetched"),
        _fact("Would be replayed", replayed, "if it were killed now"),
        _memory(subscription),
        _budget(subscription),
    )


def _memory(subscription: SubscriptionFacts) -> Html:
    status = subscription.status
    used, limit = status.buffered_bytes, status.buffered_bytes_limit
    words = f"of {size(limit)}, {plural(status.buffered_records, 'record')}"
    return _fact("In memory", size(used), words, bar(used, limit, f"{size(used)} of {size(limit)} are used"))


def _budget(subscription: SubscriptionFacts) -> Html:
    status, budget = subscription.status, subscription.budget
    limits = [
        f"at most {plural(status.concurrency_limit, 'batch', 'batches')}" if status.concurrency_limit else "",
        "found by trial" if budget.adaptive else "",
        f"at most {short(budget.rate)} records/s" if budget.rate else "",
    ]
    words = ", ".join(filter(None, limits)) or "no limit"
    used = plural(status.leases, "batch", "batches")
    picture = bar(status.leases, status.concurrency_limit, f"{used}, {words}") if status.concurrency_limit else None
    return _fact("Budget", used, words, picture)


def _fact(name: str, value: str, words: str, picture: Html | None = None) -> Html:
    return tag("div", tag("dt", name), tag("dd", tag("b", value), tag("small", words), picture))
