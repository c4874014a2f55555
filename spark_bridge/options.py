"""The options of `format("offramp")`, checked: an error names the option, its valid values, and the nearest known name.

Spark lower-cases the names of options; messages show them as they are written here.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from offramp.channel import Access
from spark_bridge.errors import BadOption, did_you_mean
from spark_bridge.positions import Positions, parse_positions

#: Spark's own options, which it passes to every data source
_SPARK_OPTIONS = frozenset(
    ("checkpointlocation", "path", "paths", "queryname", "querytimeout", "recursivefilelookup", "mode")
)


class NamedPosition(Enum):
    """Positions that options can name."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


#: a name, a time, or positions lane by lane
Position = NamedPosition | datetime | Positions


@dataclass(frozen=True)
class Option:
    """One option as documented. `parse` raises `ValueError`, whose text says which values are valid."""

    parse: Callable[[str], Any]
    default: Any
    doc: str


def _text(text: str) -> str:
    if not text:
        raise ValueError("it must not be empty")
    return text


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError('it is "true" or "false"')
    return text.lower() == "true"


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("it is a whole number, 0 or more")
    return int(text)


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", text.lower())
    if found is None:
        raise ValueError("it is a number of bytes, as in 1048576, 64m or 1g")
    return int(found[1]) * _UNITS[found[2]]


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?", text.lower())
    if found is None:
        raise ValueError("it is a time, as in 500ms, 30s or 2m")
    return float(found[1]) * {"ms": 0.001, "m": 60.0}.get(found[2], 1.0)


def _position(text: str) -> Position:
    if text.lstrip().startswith("{"):
        return parse_positions(text)
    try:
        return NamedPosition(text.lower())
    except ValueError:
        pass
    try:
        if text.isdecimal():
            return datetime.fromtimestamp(int(text) / 1_000, UTC)
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        names = [one.value for one in NamedPosition]
        raise ValueError(
            f"it is one of {', '.join(names)}, a time (2026-11-16T09:00:00Z, or milliseconds since 1970), or positions "
            f'({{"orders/0": 17}}).{did_you_mean(text, names)}'
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


#: options of everything that calls a sidecar
ACCESS: dict[str, Option] = {
    "address": Option(_text, None, "Where the sidecar is: `host:port`, or `unix:/path` on one machine."),
    "token": Option(_text, None, "The token for a sidecar beyond loopback. Redacted in Spark's own output."),
    "tokenFile": Option(_text, None, "A file with the token; must exist on the driver and on every executor."),
    "ca": Option(
        _text, None, "A PEM file: the authorities to trust over TLS. Read by the driver; executors need no copy."
    ),
    "certificate": Option(
        _text, None, "A PEM file: the client certificate, for a sidecar that asks for one. Read by the driver."
    ),
    "key": Option(_text, None, "The private key of `certificate`, a PEM file."),
    "serverName": Option(_text, None, "The name in the sidecar's certificate, if it differs from the address."),
    "timeout": Option(_seconds, 60.0, "How long a call may take, retries while a sidecar restarts included."),
}

#: options of streams and bounded reads
READING: dict[str, Option] = {
    **ACCESS,
    "subscription": Option(_text, None, "A subscription of the sidecar. Required."),
    "readAddress": Option(
        _text, None, "Where executors read ranges, if not at `address`: any sidecar with the subscription."
    ),
    "maxRecordsPerPartition": Option(
        _count, 0, "Split a lane into tasks of about this many records. 0: one task for each lane."
    ),
    "maxMessageBytes": Option(_size, 64 << 20, "The largest record that can be read."),
    "failOnDataLoss": Option(
        _switch, True, "Fail if records that are to be read no longer exist; `false` goes on with those that do."
    ),
}

#: options of a stream
STREAMING: dict[str, Option] = {
    **READING,
    "startingPosition": Option(
        _position,
        NamedPosition.COMMITTED,
        "Where a query without a checkpoint starts in lanes in which the subscription has no position yet: `earliest`, "
        "`latest`, a time, or `committed`: where the subscription's configuration says.",
    ),
    "maxRecordsPerBatch": Option(_count, 1_000_000, "The most records of a micro-batch. 0: no limit."),
    "maxBytesPerBatch": Option(
        _size, 1 << 30, "The most bytes of a micro-batch, as the sidecar estimates them. 0: no limit."
    ),
    "name": Option(_text, None, "The query's name in the sidecar's status and logs. Default: host and pid."),
}

#: options of a bounded read
BOUNDED: dict[str, Option] = {
    **READING,
    "startingPosition": Option(
        _position, NamedPosition.EARLIEST, "The first record: `earliest`, a time, or positions."
    ),
    "endingPosition": Option(
        _position, NamedPosition.LATEST, "Where to end, exclusive: `latest`, a time, or positions."
    ),
    "deadLetters": Option(_switch, False, "Read the dead letters of the subscription instead of its records."),
}

#: options of writing
WRITING: dict[str, Option] = {
    **ACCESS,
    "topic": Option(_text, None, "The topic of rows whose column `topic` is absent or null."),
    "subscription": Option(_text, None, "Publish to the broker of this subscription."),
    "broker": Option(_text, None, "Publish to a broker by its name in the sidecar's configuration, instead."),
    "maxRecordsPerRequest": Option(_count, 1_000, "The most rows of one publish request."),
    "maxBytesPerRequest": Option(_size, 1 << 20, "The most bytes of one publish request; a larger row is sent alone."),
    "idPrefix": Option(
        _text, None, "The beginning of each row's id. Default: query and batch of a stream, else a random name."
    ),
}


class Options:
    """The options that were given for one use, by their documented names."""

    def __init__(self, given: Mapping[str, str], known: Mapping[str, Option], use: str) -> None:
        """Raises `BadOption` for unknown names and invalid values."""
        by_lower = {name.lower(): name for name in known}
        self._values: dict[str, Any] = {name: option.default for name, option in known.items()}
        self._given: set[str] = set()
        for written, text in given.items():
            if written.lower() in _SPARK_OPTIONS:
                continue
            name = by_lower.get(written.lower())
            if name is None:
                raise BadOption(
                    f'option "{written}": {use} has no such option.{did_you_mean(written, known)} There are '
                    f"{', '.join(known)}"
                )
            self._given.add(name)
            try:
                self._values[name] = known[name].parse(text.strip())
            except ValueError as error:
                shown = "" if name in ("token", "key") else f' "{text}":'
                raise BadOption(f"option {name}:{shown} {error}") from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def refuse(self, *names: str, why: str) -> None:
        """Raises `BadOption` if one of these was given."""
        for name in names:
            if name in self._given:
                raise BadOption(f"option {name}: {why}")

    def require(self, name: str, hint: str) -> str:
        value = self._values[name]
        if value is None:
            raise BadOption(f"option {name}: it must be given, {hint}")
        return str(value)

    def access(self, address: str = "address") -> Access:
        """How to reach the sidecar at the address in this option. Self-contained: executors need neither the driver's
        PEM files nor its environment."""
        self.require("address", 'as in "127.0.0.1:4770"')
        try:
            return Access(
                address=self._values[address] or self._values["address"],
                token=self._values["token"],
                token_file=self._values["tokenFile"],
                ca=_pem(self._values["ca"]),
                certificate=_pem(self._values["certificate"]),
                key=_pem(self._values["key"]),
                server_name=self._values["serverName"],
            )
        except ValueError as error:
            raise BadOption(f"option {error}") from error


def _pem(path: str | None) -> str | None:
    """The content of a PEM file, so that it can be sent to executors. `Access` reports one that cannot be read."""
    if path is None or "-----BEGIN" in path:
        return path
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError):
        return path
