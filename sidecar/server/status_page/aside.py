"""Records that were put aside: parked for a later try, or dead-lettered, and why."""

from collections.abc import Sequence

from sidecar.core.failures.dead_letter_topic import DeadLetterEntry
from sidecar.server.status_page.facts import Counted, SubscriptionFacts
from sidecar.server.status_page.letters import Look
from sidecar.server.status_page.markup import Child, Html, joined, table, tag
from sidecar.server.status_page.words import clock, count, plural

_COUNTED = (("Reason", False), ("Records", True))
_LETTERS = (("Dead letter", False), ("Reason", False), ("When, UTC", False))


def section(subscription: SubscriptionFacts) -> Html:
    counters = subscription.status.counters
    return tag(
        "div",
        tag("h3", "Dead letters"),
        _reasons("dead-lettered", counters.dead_lettered, subscription.dead_for),
        _newest(subscription.letters, subscription.dead_letter_topic),
        tag("h3", "Parked"),
        _reasons("parked", counters.parked, subscription.parked_for),
        class_="aside",
    )


def _reasons(what: str, total: int, reasons: Sequence[Counted]) -> Html:
    if not total and not reasons:
        return tag("p", f"Nothing was {what} since the start.", class_="none")
    rows = [(tag("span", reason, class_="reason"), count(records)) for reason, records in reasons]
    return table(f"{plural(total, 'record')} {'was' if total == 1 else 'were'} {what} since the start", _COUNTED, rows)


def _newest(look: Look, topic: str) -> Html | None:
    if not look.at:
        return tag("p", f"{topic} has not been read yet.", class_="more")
    when = f"read at {clock(look.at)}"
    if look.trouble:
        return tag("p", f"{topic} could not be read: {look.trouble} ({when})", class_="more")
    if not look.letters:
        return tag("p", f"{topic} is empty ({when}).", class_="more")
    there = f" of {plural(look.total, 'record')}" if look.total >= 0 else ""
    return tag(
        "details",
        tag("summary", f"The newest {len(look.letters)}{there} in {topic}, {when}"),
        table(f"Newest dead letters in {topic}", _LETTERS, map(_row, look.letters)),
    )


def _row(letter: DeadLetterEntry) -> list[Child]:
    attempts = plural(letter.attempts, "attempt")
    by = f", {letter.worker}" if letter.worker else ""
    return [
        letter.id,
        joined((tag("span", letter.reason[:300], class_="reason"), tag("small", f" {attempts}{by}"))),
        clock(letter.dead_lettered_ms / 1000, date=True),
    ]
