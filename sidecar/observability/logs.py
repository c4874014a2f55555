"""Structured logs: one line to standard error for each event that matters to an operator.

    log = Log("server")
    log.info("ready", socket=path, subscriptions=names)

Fields have the names in `counters.LOG_FIELDS`. Payloads never appear.
"""

import json
import logging
import sys
import time

from sidecar.model.text import clean, clean_json
from sidecar.settings import LogSettings

_ROOT = "offramp"
#: attributes that every record of the logging module has; all others are fields of the event
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
#: parts of gRPC's messages about what clients do
_CAUSED_BY_CLIENTS = ("Invalid encoding on", "raised in core by servicer method")


class Log:
    """A logger whose lines carry named fields."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{name}")

    def debug(self, text: str, **fields: object) -> None:
        self._logger.debug(text, extra=fields)

    def info(self, text: str, **fields: object) -> None:
        self._logger.info(text, extra=fields)

    def warning(self, text: str, **fields: object) -> None:
        self._logger.warning(text, extra=fields)

    def error(self, text: str, **fields: object) -> None:
        self._logger.error(text, extra=fields)

    def bug(self, text: str, error: BaseException, **fields: object) -> None:
        """An unexpected error, with its traceback."""
        self._logger.error(text, exc_info=error, extra=fields)


def configure(settings: LogSettings) -> None:
    """Write all logs of this process to standard error. A second call replaces the first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    root = logging.getLogger()
    handler.addFilter(is_for_operators)
    root.handlers = [handler]
    # Of libraries only warnings and errors: the rest is not for operators.
    root.setLevel(logging.WARNING)
    logging.getLogger(_ROOT).setLevel(settings.level.upper())


def root() -> logging.Logger:
    """The parent of all loggers of the sidecar."""
    return logging.getLogger(_ROOT)


def fields_as_text(record: logging.LogRecord) -> str:
    """The fields of an event, each as ` name=value`."""
    return "".join(f" {name}={_plain(value)}" for name, value in _fields(record).items())


def is_for_operators(record: logging.LogRecord) -> bool:
    """False for what gRPC logs about clients: invalid headers in full, or a traceback for each client that has gone. An
    operator can do nothing about it, and whoever can connect could fill the log with it."""
    return not (record.name.startswith("grpc") and any(text in str(record.msg) for text in _CAUSED_BY_CLIENTS))


class TextFormatter(logging.Formatter):
    """For people: time, level, logger, message, fields."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{clean(record.getMessage())}{fields_as_text(record)}"
        lines = [f"{_time(record)} {record.levelname.lower():7} {_name(record)}: {text}"]
        if record.exc_info:
            # Indented, so that no text of an exception looks like a line of the log.
            lines += [f"    {clean(line)}" for line in self.formatException(record.exc_info).splitlines()]
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """For machines: one object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": _name(record),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return clean_json(json.dumps(line, default=str, ensure_ascii=False))


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _OWN and value != ""}


def _name(record: logging.LogRecord) -> str:
    return record.name.removeprefix(f"{_ROOT}.")


def _time(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def _plain(value: object) -> str:
    """Quoted unless it is one word, so that a line stays one line and can be parsed."""
    if isinstance(value, list | tuple):
        text = ",".join(map(str, value))
    elif isinstance(value, float):
        text = f"{value:.3f}"
    else:
        text = str(value)
    simple = bool(text) and not any(c.isspace() or not c.isprintable() or c in '"=' for c in text)
    return text if simple else clean_json(json.dumps(text, ensure_ascii=False))
