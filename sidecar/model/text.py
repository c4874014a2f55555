"""Numbers, ages, bars and tables for a terminal."""

from collections.abc import Collection, Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉"
_BOLD, _DIM, _RED, _GREEN, _YELLOW, _CYAN = "1", "2", "31", "32", "33", "36"


class Ink:
    """Colours, or none."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._enabled and text else text

    def bold(self, text: str) -> str:
        return self._paint(text, _BOLD)

    def dim(self, text: str) -> str:
        return self._paint(text, _DIM)

    def red(self, text: str) -> str:
        return self._paint(text, _RED)

    def green(self, text: str) -> str:
        return self._paint(text, _GREEN)

    def yellow(self, text: str) -> str:
        return self._paint(text, _YELLOW)

    def cyan(self, text: str) -> str:
        return self._paint(text, _CYAN)


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


def bar(share: float, width: int) -> str:
    """A bar of `width` characters, filled by a share of 0 to 1. Anything above nothing shows."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)


def fit(text: str, width: int) -> str:
    """On one line and no wider than `width`."""
    flat = "".join(char if char.isprintable() else " " for char in text)
    if len(flat) <= width:
        return flat
    return flat[: width - 1] + "…" if width > 0 else ""


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = (), gap: str = "  ") -> list[str]:
    """Rows as lines of aligned columns; those in `right` align right."""
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
