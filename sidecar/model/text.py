"""Text for people, without control characters of terminals; numbers, ages, sizes and tables."""

import json
import re
from collections.abc import Collection, Sequence

_NOT_ASCII = re.compile(r"[^\x20-\x7e]")


def clean(text: str) -> str:
    """The text on one line, as people may read it: workers, producers and brokers choose names and reasons.

    A space replaces all white space, and a visible mark whatever else does not print: controls of terminals (C0, C1,
    DEL), which could erase or forge lines, and characters that reorder or hide text.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def clean_json(text: str) -> str:
    """A line of JSON that means the same and that people may read: what `clean` would replace is escaped."""
    return text if text.isprintable() else _NOT_ASCII.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def short(number: float) -> str:
    """At most five characters: 999, 12.3k, 4.5M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size * 0.9995:
            scaled = number / size
            return f"{scaled:.0f}{unit}" if scaled >= 99.95 else f"{scaled:.1f}{unit}"
    return f"{number:.0f}"


def age(milliseconds: float) -> str:
    """At most six characters: 0.3s, 42s, 3m12s, 2h05m, 4d03h."""
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{seconds:.1f}s"
    seconds = int(seconds)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    if seconds < 86400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
    return f"{seconds // 86400}d{seconds % 86400 // 3600:02}h"


def size(number: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number} B"


def fit(text: str, width: int) -> str:
    """The text on one line, cut to `width`."""
    flat = clean(text)
    if len(flat) <= width:
        return flat
    return flat[: width - 1] + "…" if width > 0 else ""


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = (), gap: str = "  ") -> list[str]:
    """Rows as lines of aligned columns; the columns in `right` align right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        gap.join(
            cell.rjust(widths[at]) if at in right else cell.ljust(widths[at]) for at, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]


def plural(number: int, one: str, many: str = "") -> str:
    """`1 record`, `2,000 records`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
