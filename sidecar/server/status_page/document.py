"""The page as a whole: its head, its parts, and what a browser may do with it."""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from sidecar.observability.status import BrokerStatus
from sidecar.server.status_page.advice import Advice, all_advice, hint
from sidecar.server.status_page.event_list import event_list
from sidecar.server.status_page.facts import Facts
from sidecar.server.status_page.format import clock, duration, plural
from sidecar.server.status_page.markup import Html, joined, raw, tag, with_code
from sidecar.server.status_page.subscription_card import subscription_card

_STYLE = files(__package__).joinpath("style.css").read_text("utf-8")
_SCRIPT = files(__package__).joinpath("script.js").read_text("utf-8")
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect width='32' height='32' "
    "rx='7' fill='%230f766e'/%3E%3Cpath d='M10 27V5M10 19c0-6 12-4 12-12' fill='none' stroke='%23fff' "
    "stroke-width='3.4' stroke-linecap='round'/%3E%3C/svg%3E"
)
_LOGO = raw(
    '<svg class="mark" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7"/>'
    '<path d="M10 27V5M10 19c0-6 12-4 12-12"/></svg>'
)
#: troubles at the top of the page; the cards have all of them
_SHOWN_TROUBLES = 8


def _hash(inline: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


#: the page loads nothing, runs only its own script, and cannot be framed
POLICY = "; ".join(
    (
        "default-src 'none'",
        f"script-src {_hash(_SCRIPT)}",
        f"style-src {_hash(_STYLE)}",
        "img-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def render(facts: Facts) -> str:
    troubles = all_advice(facts)
    title = f"({len(troubles)}) Offramp" if troubles else "Offramp"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href=_ICON),
        tag("style", raw(_STYLE)),
    )
    page = tag(
        "div",
        _header(facts),
        tag(
            "main",
            _troubles(troubles, facts),
            *(subscription_card(subscription) for subscription in facts.subscriptions),
            event_list(facts.events),
        ),
        _footer(),
        id="page",
    )
    body = tag("body", page, tag("script", raw(_SCRIPT)))
    # When the version changes, the script loads the whole page again: its looks may have changed.
    return "<!doctype html>\n" + tag("html", joined((head, body)), lang="en", data_version=facts.status.version)


def _header(facts: Facts) -> Html:
    status = facts.status
    workers = sum(len(one.status.sessions) for one in facts.subscriptions)
    return tag(
        "header",
        tag("h1", _LOGO, "Offramp", tag("small", status.version)),
        tag(
            "ul",
            tag("li", "up ", tag("b", duration(status.uptime))),
            tag("li", tag("b", f"{workers:,}"), " worker" if workers == 1 else " workers"),
            *(_broker(broker) for broker in status.brokers),
            tag("li", "draining", class_="chip warn") if status.draining else None,
            class_="facts",
        ),
        tag("p", f"as of {clock(facts.now)} UTC", class_="asof", id="asof"),
        class_="top",
    )


def _troubles(found: Sequence[Advice], facts: Facts) -> Html:
    if not found:
        notable = [one.status.name for one in facts.subscriptions if hint(one)]
        names = ", ".join(notable[:3]) + (" and others" if len(notable) > 3 else "")
        verdict = f"Nothing is wrong, but have a look at {names}" if notable else "All is well – nothing needs you"
        if facts.status.draining:
            verdict = "Stopping in order"
        return tag("section", tag("h2", f"{verdict}."), class_="calm", id="verdict")
    items = [
        tag("li", tag("p", tag("b", one.about), ": ", one.trouble), tag("p", with_code(one.todo), class_="todo"))
        for one in found[:_SHOWN_TROUBLES]
    ]
    more = tag("p", f"and {len(found) - _SHOWN_TROUBLES} more, below") if len(found) > _SHOWN_TROUBLES else None
    needs = f"{plural(len(found), 'thing')} {'needs' if len(found) == 1 else 'need'} you"
    return tag("section", tag("h2", needs), tag("ul", *items), more, class_="alarm", id="verdict")


def _footer() -> Html:
    links = [tag("a", path, href=path) for path in ("metrics", "healthz", "readyz", "version")]
    return tag("footer", tag("p", "Read-only. Commands: ", tag("code", "offramp --help")), tag("p", *links))


def _broker(broker: BrokerStatus) -> Html:
    facts = ", ".join(f"{name} {value}" for name, value in sorted(broker.facts.items()))
    name = broker.name if broker.name == broker.type else f"{broker.name} ({broker.type})"
    state = "in trouble" if broker.trouble else "up"
    return tag(
        "li", f"{name} ", tag("b", state), class_="chip bad" if broker.trouble else "chip good", title=facts or None
    )
