"""The events of the last minutes, newest first."""

from sidecar.server.status_page.events import Event
from sidecar.server.status_page.facts import Facts
from sidecar.server.status_page.markup import Html, tag
from sidecar.server.status_page.words import clock

#: events that are shown
SHOWN = 40


def feed(facts: Facts) -> Html:
    events = facts.events[:SHOWN]
    if not events:
        return tag("section", tag("h2", "Events"), tag("p", "Nothing has happened yet.", class_="none"), class_="card")
    return tag(
        "section",
        tag("div", tag("h2", "Events"), tag("p", "newest first, in UTC", class_="what"), class_="title"),
        tag("ol", *map(_event, events), class_="events"),
        class_="card",
    )


def _event(event: Event) -> Html:
    return tag(
        "li",
        tag("time", clock(event.at), datetime=f"{clock(event.at, date=True).replace(' ', 'T')}Z"),
        tag("span", event.level, class_=f"level {event.level}"),
        tag(
            "span",
            event.text,
            tag("b", f" ×{event.times:,}") if event.times > 1 else None,
            tag("small", f" {event.fields}") if event.fields else None,
            class_="said",
        ),
    )
