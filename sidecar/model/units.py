"""Parses and formats durations and sizes as people write them."""

import math
import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# The number of digits is limited, so that no text becomes infinity or takes long to parse.
_DURATION = re.compile(r"(?:\d{1,15}(?:\.\d{1,15})? ?(?:ms|s|m|h|d) ?){1,5}", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h|d)", re.ASCII)
_SIZES = {
    "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
    "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40,
}  # fmt: skip
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?) ?([a-z]*)", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})(?:[eE][+-]?\d{1,2})?", re.ASCII)
#: far beyond any use, and well within the range of timers and the protocol
_MOST_SECONDS = 100 * 365 * 86400.0
_MOST_BYTES = 1 << 60


class FormatError(ValueError):
    """The text has the wrong form. The message continues a sentence that begins with it: `is not a duration ...`."""

    def __init__(self, text: str, choices: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        #: the allowed words, to suggest the nearest
        self.choices = choices


def without_underscores(text: str) -> str:
    """20000 for 20_000."""
    return re.sub(r"(?<=\d)_(?=\d)", "", text)


def parse_duration(text: str) -> float:
    """Seconds of `200ms`, `5s`, `1h30m` or a plain number. Raises `FormatError`."""
    if _NUMBER.fullmatch(text):
        seconds = float(text)
    elif _DURATION.fullmatch(text):
        # Rounded, so that 1m200ms is exactly 60.2.
        seconds = round(math.fsum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text)), 9)
    else:
        raise FormatError("is not a duration such as 200ms, 5s, 10m or 1h")
    if seconds > _MOST_SECONDS:
        raise FormatError("is longer than a lifetime")
    return seconds


def show_duration(seconds: float) -> str:
    for unit in ("d", "h", "m", "s"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{int(seconds / _UNITS[unit])}{unit}"
    if seconds == 0:
        return "0s"
    return f"{seconds:.9g}s" if seconds > 1 else f"{seconds * 1000:.9g}ms"


def parse_size(text: str) -> int:
    """Bytes of `512KiB`, `1MiB`, `10MB` or a plain number. Raises `FormatError`."""
    found = _SIZE.fullmatch(without_underscores(text))
    factor = _SIZES.get((found[2] or "b").lower()) if found else None
    if found is None or factor is None:
        raise FormatError("is not a size such as 4096, 512KiB, 1MiB or 10MB")
    size = float(found[1]) * factor if "." in found[1] else int(found[1]) * factor
    if size != int(size):
        raise FormatError("is not a whole number of bytes")
    if size > _MOST_BYTES:
        raise FormatError("is larger than any disk")
    return int(size)


def show_size(size: int) -> str:
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"
