"""Numbers and times as text for people."""

import time

from sidecar.model.text import plural, short, size

__all__ = ["clock", "count", "duration", "plural", "rate", "short", "size"]


def count(number: int) -> str:
    """In full up to a million; `?` for a negative number, which means unknown."""
    return "?" if number < 0 else f"{number:,}" if number < 1_000_000 else short(number)


def rate(value: float) -> str:
    """Records per second."""
    return f"{value:.1f}" if 0 < value < 10 and value != int(value) else short(value)


def duration(seconds: float) -> str:
    """At most two units: `4 ms`, `1.3 s`, `42 s`, `3 min 12 s`, `2 h 5 min`, `4 d 3 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for large, small, ratio, of in (("d", "h", 86400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if whole >= ratio:
            rest = whole % ratio // of
            return f"{whole // ratio} {large}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def clock(at: float, *, date: bool = False) -> str:
    """The time of day, in UTC as in the log."""
    return time.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S", time.gmtime(at))
