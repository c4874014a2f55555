"""The page as a whole: its head, its parts, and what a browser may do with it."""

import base64
import hashlib
from importlib.resources import files

from sidecar.server.status_page import cards, feed, overview
from sidecar.server.status_page.advice import wrong
from sidecar.server.status_page.facts import Facts
from sidecar.server.status_page.markup import joined, raw, tag

_STYLE = files(__package__).joinpath("style.css").read_text("utf-8")
_SCRIPT = files(__package__).joinpath("script.js").read_text("utf-8")
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect width='32' height='32' "
    "rx='7' fill='%230f766e'/%3E%3Cpath d='M10 27V5M10 19c0-6 12-4 12-12' fill='none' stroke='%23fff' "
    "stroke-width='3.4' stroke-linecap='round'/%3E%3C/svg%3E"
)


def _hash(inline: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


#: nothing is loaded but what is in the page, nothing runs but its own script, nobody frames it
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
    troubles = wrong(facts)
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
        overview.top(facts),
        tag(
            "main",
            overview.troubles(troubles, facts),
            *(cards.card(subscription) for subscription in facts.subscriptions),
            feed.feed(facts),
        ),
        overview.bottom(),
        id="page",
    )
    body = tag("body", page, tag("script", raw(_SCRIPT)))
    # A page of another version has other looks: then the script loads all of it again.
    return "<!doctype html>\n" + tag("html", joined((head, body)), lang="en", data_version=facts.status.version)
