"""A terminal: colours, single keys, and a screen that is drawn in place and restored at the end."""

import contextlib
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

_BOLD, _DIM, _RED, _GREEN, _YELLOW, _CYAN = "1", "2", "31", "32", "33", "36"
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Ink:
    """Text with ANSI colours, or plain if they are disabled."""

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


@dataclass(frozen=True, slots=True)
class View:
    """The size to draw for, and the colours to draw with."""

    width: int
    height: int
    ink: Ink


def bar(share: float, width: int) -> str:
    """A bar of `width` characters, filled by a share of 0 to 1. Any share above 0 is visible."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)


class Screen:
    """A context that switches the terminal to its alternate screen without a cursor, and back."""

    def __init__(self) -> None:
        self.ink = Ink("NO_COLOR" not in os.environ)

    @property
    def view(self) -> View:
        """As large as the terminal is now."""
        return View(*shutil.get_terminal_size(), self.ink)

    def draw(self, lines: Sequence[str]) -> None:
        """Replaces what is on the screen. Nothing is cleared first, so that it does not flicker."""
        self._write(_HOME + "\r\n".join(line + _CLEAR_LINE for line in lines) + _CLEAR_BELOW)

    def __enter__(self) -> Self:
        self._write(_ENTER)
        return self

    def __exit__(self, *error: object) -> None:
        # The context may end because the terminal is gone.
        with contextlib.suppress(OSError):
            self._write(_LEAVE)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


@contextlib.contextmanager
def single_keys() -> Iterator[int]:
    """Within the context keys arrive without Enter and without echo. Yields the file descriptor to read them from.

    SIGTERM raises `KeyboardInterrupt` meanwhile, because it must restore the terminal as Ctrl-C does.
    """
    keys = sys.stdin.fileno()
    modes = termios.tcgetattr(keys)
    on_terminate = signal.signal(signal.SIGTERM, _interrupt)
    try:
        tty.setcbreak(keys)
        yield keys
    finally:
        signal.signal(signal.SIGTERM, on_terminate)
        termios.tcsetattr(keys, termios.TCSADRAIN, modes)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
