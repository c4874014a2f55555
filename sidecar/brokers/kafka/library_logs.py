"""What librdkafka reports by itself: its log lines, and why its connections fail. Creates clients that report here."""

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from sidecar.brokers.kafka.errors import VAGUE, kafka_error, translate
from sidecar.brokers.kafka.options import KafkaOptions
from sidecar.model.errors import BrokerError
from sidecar.observability.logs import Log

Client = TypeVar("Client")

log = Log("kafka")

#: seconds within which the same line is logged once, and the number of lines that are remembered for that
_REPEAT_INTERVAL, _MAX_REMEMBERED = 60.0, 1000
#: seconds for which an error explains others that give no reason
_RECENT = 15.0
_NUMBERS = re.compile(r"\d+")
#: lines about what our own errors say better, or on which nobody can act
_UNIMPORTANT = re.compile(
    r"^(FAIL|FATAL|REQTMOUT|ERROR|CONFWARN|GETPID|PIDERR|SESSTMOUT|MAXPOLL|HBERR|COMMITFAIL|METADATA|OFFSET|ASSIGN|TERM)\b"
)


class LibraryLogs(logging.Handler):
    """Writes the lines of librdkafka to our log: a few as warnings, most at debug level, repeated ones once."""

    def __init__(self) -> None:
        super().__init__()
        self.logger = logging.Logger("librdkafka")
        self.logger.propagate = False
        self.logger.addHandler(self)
        #: when a line was logged last; lines that differ only in numbers count as the same
        self._logged: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        shape = _NUMBERS.sub("#", text)
        now = time.monotonic()
        if now - self._logged.get(shape, -_REPEAT_INTERVAL) < _REPEAT_INTERVAL:
            return
        if len(self._logged) > _MAX_REMEMBERED:
            self._logged.clear()
        self._logged[shape] = now
        important = record.levelno >= logging.WARNING and not _UNIMPORTANT.match(text)
        (log.warning if important else log.debug)(text)


class RecentErrors:
    """The last error of a connection. It explains calls that only timed out."""

    def __init__(self) -> None:
        self._last: tuple[float, KafkaError] | None = None

    def add(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self.latest() is not None:
            # The earlier error says why.
            return
        self._last = (time.monotonic(), error)

    def latest(self) -> KafkaError | None:
        last = self._last
        return last[1] if last is not None and time.monotonic() - last[0] < _RECENT else None

    def explain(self, error: KafkaError) -> KafkaError:
        """The recent error that explains this one if it gives no reason; otherwise the error itself."""
        return (self.latest() if error.code() in VAGUE else None) or error


class LibraryClients:
    """Creates the clients of one broker, which report to the same log and the same recent errors."""

    def __init__(self, options: KafkaOptions) -> None:
        self.options = options
        self.recent_errors = RecentErrors()
        self.logs = LibraryLogs()

    def create(self, client: Callable[..., Client], conf: Mapping[str, Any]) -> Client:
        """Raises `Refused` if the library does not accept the settings."""
        try:
            return client({"error_cb": self.recent_errors.add, **conf}, logger=self.logs.logger)
        except KafkaException as error:
            raise translate(error, "use the settings") from error

    def translate(self, error: KafkaError | KafkaException, doing: str) -> BrokerError:
        """As `errors.translate`, with the recent error that explains this one."""
        return translate(self.recent_errors.explain(kafka_error(error)), doing)
