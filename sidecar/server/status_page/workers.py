"""The workers of a subscription: who is there, what each holds, and for how long."""

from collections.abc import Sequence
from heapq import nlargest

from sidecar.observability.status import SessionStatus, SubscriptionStatus
from sidecar.server.status_page.markup import Child, Html, joined, table, tag
from sidecar.server.status_page.words import count, lasting

#: workers that are shown: those that hold something for longest, if there are more
SHOWN = 20
_HEADINGS = (
    ("Worker", False),
    ("Batches", True),
    ("Records", True),
    ("Held for", True),
    ("Asks for", True),
    ("Connected", True),
)


def section(status: SubscriptionStatus) -> Html:
    sessions = status.sessions
    if not sessions:
        return tag("div", tag("h3", "Workers"), tag("p", "No worker is connected.", class_="none"), class_="workers")
    shown = longest(sessions)
    rest = f"Those {len(shown)} of {len(sessions):,} workers that have held their batches for longest."
    return tag(
        "div",
        tag("h3", "Workers"),
        table("Connected processes, and the batches in their hands", _HEADINGS, map(_row, shown)),
        tag("p", rest, class_="more") if len(shown) < len(sessions) else None,
        class_="workers",
    )


def longest(sessions: Sequence[SessionStatus]) -> Sequence[SessionStatus]:
    if len(sessions) <= SHOWN:
        return sessions
    return nlargest(SHOWN, sessions, key=lambda session: (session.oldest_lease, session.in_flight_records))


def _row(session: SessionStatus) -> list[Child]:
    client = " ".join(filter(None, (session.language, session.library)))
    details = ", ".join(filter(None, (client, f"pid {session.pid}" if session.pid else "")))
    return [
        joined((session.name, tag("small", f" {details}") if details else None)),
        count(session.leases),
        count(session.in_flight_records),
        lasting(session.oldest_lease) if session.leases else tag("span", "–", class_="none"),
        count(session.credit_batches),
        lasting(session.age),
    ]
