"""The latest events of the log, kept in a ring of fixed size, and their list. The log has no payloads."""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sidecar.observability import logs
from sidecar.server.status_page.format import clock
from sidecar.server.status_page.markup import Html, tag

#: events that are kept, and of these events that the page shows
MAX_EVENTS = 200
SHOWN_EVENTS = 40
#: characters of an event
_MAX_TEXT = 400


@dataclass(frozen=True, slots=True)
class Event:
    #: seconds since 1970
    at: float
    level: str
    text: str
    #: name=value, as in the log
    fields: str
    #: how many times in a row
    times: int = 1


class EventLog(logging.Handler):
    """Listens to the sidecar's own log. The same event several times in a row is kept once, with a count."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._kept: deque[Event] = deque(maxlen=MAX_EVENTS)

    def listen(self) -> None:
        logs.root().addHandler(self)

    def close(self) -> None:
        logs.root().removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        text, fields = record.getMessage()[:_MAX_TEXT], logs.fields_as_text(record).strip()[:_MAX_TEXT]
        event = Event(record.created, record.levelname.lower(), text, fields)
        last = self._kept[-1] if self._kept else None
        if last is not None and (last.level, last.text, last.fields) == (event.level, text, fields):
            self._kept[-1] = replace(event, times=last.times + 1)
        else:
            self._kept.append(event)

    def latest(self, count: int) -> Sequence[Event]:
        """The newest first."""
        # A copy: another thread may log meanwhile.
        return list(self._kept.copy())[: -count - 1 : -1]


def event_list(events: Sequence[Event]) -> Html:
    """The newest events, which come first."""
    if not events:
        return tag("section", tag("h2", "Events"), tag("p", "Nothing has happened yet.", class_="none"), class_="card")
    return tag(
        "section",
        tag("div", tag("h2", "Events"), tag("p", "newest first, in UTC", class_="what"), class_="title"),
        tag("ol", *map(_event, events[:SHOWN_EVENTS]), class_="events"),
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
