"""How each kind of value is written: text to value, value to text, and a word for people on what it takes.

A form is chosen by the type of a setting, never by what YAML makes of the text. So `no` is a fine topic, `0660` a
mode and `12:30` never a number of seconds.
"""

import math
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from sidecar.config.wording import join_words
from sidecar.settings import Bytes, Seconds

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# Digits are counted, so that no text can become an infinity or a number that takes long to read.
_DURATION = re.compile(r"(?:\d{1,15}(?:\.\d{1,15})? ?(?:ms|s|m|h|d) ?){1,5}", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h|d)", re.ASCII)
_SIZES = {
    "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
    "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40,
}  # fmt: skip
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?) ?([a-z]*)", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?(?:0|[1-9]\d{0,18})", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})(?:[eE][+-]?\d{1,2})?", re.ASCII)
_MODE = re.compile(r"(?:0o)?[0-7]{1,4}")
_TRUE = {"true", "yes", "on"}
_FALSE = {"false", "no", "off"}


class FormError(ValueError):
    """The text is not of the form. Its words follow the quoted text: `is not a duration ...`."""

    def __init__(self, text: str, choices: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        #: the words that would do, for finding the nearest
        self.choices = choices


@dataclass(frozen=True, slots=True)
class Form:
    """One way of writing a value."""

    #: what it takes, for people: `a duration such as 200ms, 5s, 10m or 1h`
    takes: str
    #: the same in a word or two, for tables
    short: str
    #: raises `FormError`
    parse: Callable[[str], Any]
    #: the shortest text that `parse` turns back into the value
    show: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list, or one text with commas."""

    item: Form


@dataclass(frozen=True, slots=True)
class MapOf:
    """Free names, each with a value of this type."""

    value: Any


@dataclass(frozen=True, slots=True)
class Group:
    """The keys of a settings class."""

    cls: type


def parse_duration(text: str) -> float:
    """Seconds of `200ms`, `5s`, `1h30m` or a plain number. Raises `FormError`."""
    if _NUMBER.fullmatch(text):
        return float(text)
    if not _DURATION.fullmatch(text):
        raise FormError("is not a duration such as 200ms, 5s, 10m or 1h")
    # Rounded, so that 1m200ms is 60.2 and not a hair beside it.
    return round(math.fsum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text)), 9)


def show_duration(seconds: float) -> str:
    for unit in ("d", "h", "m", "s"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{int(seconds / _UNITS[unit])}{unit}"
    if seconds == 0:
        return "0s"
    return f"{seconds:.9g}s" if seconds > 1 else f"{seconds * 1000:.9g}ms"


def parse_size(text: str) -> int:
    """Bytes of `512KiB`, `1MiB`, `10MB` or a plain number. Raises `FormError`."""
    found = _SIZE.fullmatch(_plain(text))
    factor = _SIZES.get((found[2] or "b").lower()) if found else None
    if found is None or factor is None:
        raise FormError("is not a size such as 4096, 512KiB, 1MiB or 10MB")
    size = float(found[1]) * factor if "." in found[1] else int(found[1]) * factor
    if size != int(size):
        raise FormError("is not a whole number of bytes")
    return int(size)


def show_size(size: int) -> str:
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def _parse_whole(text: str) -> int:
    digits = _plain(text)
    if not _WHOLE.fullmatch(digits):
        # Not even 0500: YAML 1.1 takes it for octal, people do not.
        raise FormError("is not a whole number")
    return int(digits)


def _parse_number(text: str) -> float:
    digits = _plain(text)
    if not _NUMBER.fullmatch(digits):
        raise FormError("is not a number")
    return float(digits)


def _plain(text: str) -> str:
    """Without the underscores between digits of 20_000."""
    return re.sub(r"(?<=\d)_(?=\d)", "", text)


def _parse_bool(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise FormError("is neither true nor false", ("true", "false"))


def _parse_mode(text: str) -> int:
    if not _MODE.fullmatch(text):
        raise FormError("is not a mode in octal such as 0660")
    return int(text.removeprefix("0o"), 8)


def split_address(text: str) -> tuple[str, int] | None:
    """Host and port of `host:port` or `[::1]:port`; None if it is neither."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host and not bracketed) or any(c.isspace() for c in host):
        return None
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 1 << 16):
        return None
    return host.strip("[]"), int(port)


def _parse_address(text: str) -> str:
    if text and split_address(text) is None:
        raise FormError("is not host:port")
    return text


def _show_number(number: float) -> str:
    return f"{number:.12g}"


def _choice(cls: type[StrEnum]) -> Form:
    words = tuple(member.value for member in cls)

    def parse(text: str) -> StrEnum:
        if text not in words:
            raise FormError(f"is not one of {', '.join(words)}", words)
        return cls(text)

    return Form(join_words(words), join_words(words), parse, lambda member: str(member.value))


_FORMS: dict[Any, Form] = {
    str: Form("text", "text", str, str),
    int: Form("a whole number", "whole number", _parse_whole, str),
    float: Form("a number", "number", _parse_number, _show_number),
    bool: Form("true or false", "true or false", _parse_bool, lambda yes: "true" if yes else "false"),
    Seconds: Form("a duration such as 200ms, 5s, 10m or 1h", "duration", parse_duration, show_duration),
    Bytes: Form("a size such as 512KiB, 1MiB or 10MB", "size", parse_size, show_size),
    "mode": Form("a mode in octal such as 0660", "octal mode", _parse_mode, lambda mode: f"{mode:04o}"),
    "address": Form("host:port", "host:port", _parse_address, str),
}


@cache
def form_of(hint: Any) -> Form | ListOf | MapOf | Group:
    """What a setting of this type is written as. `X | None` is written as X is."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _FORMS[args[1]]
    if origin in (Union, types.UnionType):
        (only,) = (arg for arg in args if arg is not type(None))
        return form_of(only)
    if origin is tuple:
        item = form_of(args[0])
        assert isinstance(item, Form), f"a list of {args[0]} cannot be written"
        return ListOf(item)
    if origin is not None and issubclass(origin, Mapping):
        return MapOf(args[1])
    if hint in _FORMS:
        return _FORMS[hint]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _choice(hint)
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        return Group(hint)
    raise TypeError(f"a setting of type {hint} cannot be written")
