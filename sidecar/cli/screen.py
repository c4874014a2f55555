"""A terminal for `offramp top`: drawn in place, left as it was found."""

import os
import select
import shutil
import signal
import sys
import termios
import tty
from types import TracebackType
from typing import Self

from offramp.v1 import admin_pb2
from sidecar.cli.connection import CallError
from sidecar.cli.frame import View, draw
from sidecar.cli.watching import Watcher
from sidecar.model.text import Ink, fit

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_SCROLL = {b"\x1b[A": -1, b"\x1b[B": 1, b"\x1b[5~": -10, b"\x1b[6~": 10, b"k": -1, b"j": 1}
_QUIT = (b"q", b"Q", b"\x1b")


class Screen:
    """A context in which the terminal is ours: another screen, no cursor, keys without Enter."""

    def __init__(self) -> None:
        self._ink = Ink("NO_COLOR" not in os.environ)
        self._keys = sys.stdin.fileno()
        self._now: admin_pb2.Status | None = None
        self._before: admin_pb2.Status | None = None
        self._trouble = ""
        self._scroll = 0

    def __enter__(self) -> Self:
        self._modes = termios.tcgetattr(self._keys)
        # A terminate signal must leave the terminal as orderly as Ctrl-C does.
        self._on_terminate = signal.signal(signal.SIGTERM, _interrupt)
        tty.setcbreak(self._keys)
        self._write(_ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, self._on_terminate)
        self._write(_LEAVE)
        termios.tcsetattr(self._keys, termios.TCSADRAIN, self._modes)

    def show(self, watcher: Watcher) -> None:
        """Draws what arrives until somebody quits. Raises `CallError` if the sidecar says no."""
        # Not drawn from within the handler: it may come in the middle of another drawing.
        signal.signal(signal.SIGWINCH, lambda number, frame: watcher.ring())
        while True:
            ready, _, _ = select.select([self._keys, watcher.fd], [], [])
            if self._keys in ready:
                key = os.read(self._keys, 16)
                if not key or key in _QUIT:
                    return
                self._scroll = max(0, self._scroll + _SCROLL.get(key, 0))
            if watcher.fd in ready:
                os.read(watcher.fd, 64)
                while not watcher.news.empty():
                    self._take(watcher.news.get())
            self._draw()

    def _take(self, news: admin_pb2.Status | CallError) -> None:
        if not isinstance(news, CallError):
            self._before, self._now, self._trouble = self._now, news, ""
        elif news.gone:
            self._trouble = str(news)
        else:
            raise news

    def _draw(self) -> None:
        width, height = shutil.get_terminal_size()
        view = View(width, height - bool(self._trouble), self._ink)
        lines = draw(self._now, self._before, view, self._scroll) if self._now is not None else ["connecting"]
        if self._trouble:
            lines = [self._ink.red(fit(f"! {self._trouble}", width)), *lines]
        self._write(_HOME + "\r\n".join(line + _CLEAR_LINE for line in lines) + _CLEAR_BELOW)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
