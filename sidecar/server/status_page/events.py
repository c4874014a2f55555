"""What was logged for operators lately, kept in a ring of fixed size. No payloads: the log has none."""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sidecar.observability import logs

#: events that are kept
KEPT = 200
#: characters of an event
_LENGTH = 400


@dataclass(frozen=True, slots=True)
class Event:
    #: seconds since 1970
    at: float
    level: str
    text: str
    #: name=value, as in the log
    fields: str
    #: how often in a row
    times: int = 1


class Events(logging.Handler):
    """Listens to the sidecar's own log. What repeats itself in a row is one event that counts."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._kept: deque[Event] = deque(maxlen=KEPT)

    def listen(self) -> None:
        logs.root().addHandler(self)

    def close(self) -> None:
        logs.root().removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        text, fields = record.getMessage()[:_LENGTH], logs.fields_as_text(record).strip()[:_LENGTH]
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
