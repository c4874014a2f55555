"""The top of the page: which sidecar this is, and whether it needs anybody."""

from collections.abc import Sequence

from sidecar.observability.status import BrokerStatus
from sidecar.server.status_page.advice import Advice, hint
from sidecar.server.status_page.facts import Facts
from sidecar.server.status_page.markup import Html, joined, raw, tag, text
from sidecar.server.status_page.words import clock, lasting, plural

_MARK = raw(
    '<svg class="mark" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7"/>'
    '<path d="M10 27V5M10 19c0-6 12-4 12-12"/></svg>'
)
#: troubles that are told; the cards have all of them
_SHOWN = 8


def top(facts: Facts) -> Html:
    status = facts.status
    workers = sum(len(one.status.sessions) for one in facts.subscriptions)
    return tag(
        "header",
        tag("h1", _MARK, "Offramp", tag("small", status.version)),
        tag(
            "ul",
            tag("li", "up ", tag("b", lasting(status.uptime))),
            tag("li", tag("b", f"{workers:,}"), " worker" if workers == 1 else " workers"),
            *(_broker(broker) for broker in status.brokers),
            tag("li", "draining", class_="chip warn") if status.draining else None,
            class_="facts",
        ),
        tag("p", f"as of {clock(facts.now)} UTC", class_="asof", id="asof"),
        class_="top",
    )


def troubles(found: Sequence[Advice], facts: Facts) -> Html:
    if not found:
        look = [one.status.name for one in facts.subscriptions if hint(one)]
        names = ", ".join(look[:3]) + (" and others" if len(look) > 3 else "")
        verdict = f"Nothing is wrong, but have a look at {names}" if look else "All is well – nothing needs you"
        if facts.status.draining:
            verdict = "Stopping in order"
        return tag("section", tag("h2", f"{verdict}."), class_="calm", id="verdict")
    items = [
        tag("li", tag("p", tag("b", one.about), ": ", one.what), tag("p", coded(one.todo), class_="todo"))
        for one in found[:_SHOWN]
    ]
    more = tag("p", f"and {len(found) - _SHOWN} more, below") if len(found) > _SHOWN else None
    needs = f"{plural(len(found), 'thing')} {'needs' if len(found) == 1 else 'need'} you"
    return tag("section", tag("h2", needs), tag("ul", *items), more, class_="alarm", id="verdict")


def bottom() -> Html:
    links = [tag("a", path, href=path) for path in ("metrics", "healthz", "readyz", "version")]
    return tag("footer", tag("p", "Read-only. Commands: ", tag("code", "offramp --help")), tag("p", *links))


def coded(sentence: str) -> Html:
    """With what stands between backticks as code."""
    parts = sentence.split("`")
    return joined(tag("code", part) if at % 2 else text(part) for at, part in enumerate(parts))


def _broker(broker: BrokerStatus) -> Html:
    facts = ", ".join(f"{name} {value}" for name, value in sorted(broker.facts.items()))
    name = broker.name if broker.name == broker.type else f"{broker.name} ({broker.type})"
    state = "in trouble" if broker.trouble else "up"
    return tag(
        "li", f"{name} ", tag("b", state), class_="chip bad" if broker.trouble else "chip good", title=facts or None
    )
