"""The library's own log lines, and what it says of its connections."""

import logging
import re
import time

from confluent_kafka import KafkaError

from sidecar.brokers.kafka.errors import VAGUE
from sidecar.observability.logs import Log

log = Log("kafka")

#: seconds in which the same line is told once
_ONCE_IN = 60.0
#: seconds for which a reason counts for what fails without one
_FRESH = 15.0
_NUMBERS = re.compile(r"\d+")
#: lines that say what an error of ours says better, or what nobody can act on
_DULL = re.compile(
    r"^(FAIL|FATAL|REQTMOUT|ERROR|CONFWARN|GETPID|PIDERR|SESSTMOUT|MAXPOLL|HBERR|COMMITFAIL|METADATA|OFFSET|ASSIGN|TERM)\b"
)


class Chatter(logging.Handler):
    """Takes the lines of librdkafka into our logs: rarely as a warning, mostly at the level for those who debug."""

    def __init__(self) -> None:
        super().__init__()
        self.logger = logging.Logger("librdkafka")
        self.logger.propagate = False
        self.logger.addHandler(self)
        self._told: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        shape = _NUMBERS.sub("#", text)
        now = time.monotonic()
        if now - self._told.get(shape, -_ONCE_IN) < _ONCE_IN:
            return
        if len(self._told) > 1000:
            self._told.clear()
        self._told[shape] = now
        worth_it = record.levelno >= logging.WARNING and not _DULL.match(text)
        (log.warning if worth_it else log.debug)(text)


class Reasons:
    """Why connections fail, as last heard: a call that only timed out did so for this reason."""

    def __init__(self) -> None:
        self._heard: tuple[float, KafkaError] | None = None

    def heard(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self.latest() is not None:
            return
        self._heard = (time.monotonic(), error)

    def latest(self) -> KafkaError | None:
        heard = self._heard
        return heard[1] if heard is not None and time.monotonic() - heard[0] < _FRESH else None

    def behind(self, error: KafkaError) -> KafkaError:
        """The error itself, or the reason for it if it only says that nothing works."""
        return (self.latest() if error.code() in VAGUE else None) or error
