"""How each type of value is written: text to value, value to text, and a description for people.

The type of a setting decides, never what YAML makes of the text. So `no` is a valid topic, `0660` a mode, and `12:30`
never a number of seconds.
"""

import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from sidecar.config.messages import join_words
from sidecar.model.addresses import split_address
from sidecar.model.units import FormatError, parse_duration, parse_size, show_duration, show_size, without_underscores
from sidecar.settings import Bytes, Seconds

_WHOLE = re.compile(r"[+-]?(?:0|[1-9]\d{0,17})", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})(?:[eE][+-]?\d{1,2})?", re.ASCII)
_MODE = re.compile(r"(?:0o)?[0-7]{1,4}")
_TRUE = {"true", "yes", "on"}
_FALSE = {"false", "no", "off"}


@dataclass(frozen=True, slots=True)
class Format:
    """How values of one type are written."""

    #: what is allowed, for error messages: `a duration such as 200ms, 5s, 10m or 1h`
    takes: str
    #: the same in one or two words, for tables
    short: str
    #: raises `FormatError`
    parse: Callable[[str], Any]
    #: the shortest text that `parse` turns back into the value
    show: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list, or one text with commas."""

    item: Format


@dataclass(frozen=True, slots=True)
class MapOf:
    """Names chosen by the user, each with a value of this type."""

    value: Any


@dataclass(frozen=True, slots=True)
class Group:
    """The keys of a settings class."""

    cls: type


def _parse_whole(text: str) -> int:
    digits = without_underscores(text)
    if not _WHOLE.fullmatch(digits):
        # 0500 is refused: YAML 1.1 reads it as octal, people do not.
        raise FormatError("is not a whole number")
    return int(digits)


def _parse_number(text: str) -> float:
    digits = without_underscores(text)
    if not _NUMBER.fullmatch(digits):
        raise FormatError("is not a number")
    return float(digits)


def _parse_bool(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise FormatError("is neither true nor false", ("true", "false"))


def _parse_mode(text: str) -> int:
    if not _MODE.fullmatch(text):
        raise FormatError("is not a mode in octal such as 0660")
    return int(text.removeprefix("0o"), 8)


def _parse_address(text: str) -> str:
    if text and split_address(text) is None:
        raise FormatError("is not host:port")
    return text


def _show_number(number: float) -> str:
    return f"{number:.12g}"


def choice_of(words: tuple[str, ...], member: Callable[[str], str] = str) -> Format:
    """One of several words, each of which stands for a member of an enumeration, or for itself."""

    def parse(text: str) -> str:
        if text not in words:
            raise FormatError(f"is not one of {', '.join(words)}", words)
        return member(text)

    return Format(join_words(words), join_words(words), parse, str)


_FORMATS: dict[Any, Format] = {
    str: Format("text", "text", str, str),
    int: Format("a whole number", "whole number", _parse_whole, str),
    float: Format("a number", "number", _parse_number, _show_number),
    bool: Format("true or false", "true or false", _parse_bool, lambda yes: "true" if yes else "false"),
    Seconds: Format("a duration such as 200ms, 5s, 10m or 1h", "duration", parse_duration, show_duration),
    Bytes: Format("a size such as 512KiB, 1MiB or 10MB", "size", parse_size, show_size),
    "mode": Format("a mode in octal such as 0660", "octal mode", _parse_mode, lambda mode: f"{mode:04o}"),
    "address": Format("host:port", "host:port", _parse_address, str),
}


@cache
def format_of(hint: Any) -> Format | ListOf | MapOf | Group:
    """How a setting of this type is written. `X | None` is written like X."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _FORMATS[args[1]]
    if origin in (Union, types.UnionType):
        (only,) = (arg for arg in args if arg is not type(None))
        return format_of(only)
    if origin is tuple:
        item = format_of(args[0])
        assert isinstance(item, Format), f"a list of {args[0]} cannot be written"
        return ListOf(item)
    if origin is not None and issubclass(origin, Mapping):
        return MapOf(args[1])
    if hint in _FORMATS:
        return _FORMATS[hint]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return choice_of(tuple(hint), hint)
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        return Group(hint)
    raise TypeError(f"a setting of type {hint} cannot be written")
