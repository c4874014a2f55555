"""Who watches: a person at a terminal, or a log."""

import contextlib
import os
import shutil
import sys
import time
from typing import Self

from sidecar.cli.demo.frame import Told, View, clock, draw, summary
from sidecar.cli.demo.picture import Picture
from sidecar.cli.demo.plan import Plan
from sidecar.model.text import Ink

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
#: seconds between two lines of figures where there is no terminal
_PROGRESS_EVERY = 3.0


class Audience:
    """A context, within which things happen that are told and shown. This one is a log: line after line."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._began = time.monotonic()
        self._next_progress = _PROGRESS_EVERY

    @property
    def ink(self) -> Ink:
        return Ink(enabled=False)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def tell(self, text: str) -> None:
        """What has just happened."""
        print(Told(self.elapsed, text), flush=True)

    def show(self, picture: Picture) -> None:
        """How things are."""
        if self.elapsed >= self._next_progress:
            self._next_progress = self.elapsed + _PROGRESS_EVERY
            print(f"{clock(self.elapsed)}    ({summary(self._plan, picture)})", flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Terminal(Audience):
    """A person: everything is drawn in place on another screen, and the story stays when that is left."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._story: list[Told] = []
        self._picture = Picture()

    @property
    def ink(self) -> Ink:
        return Ink("NO_COLOR" not in os.environ)

    def tell(self, text: str) -> None:
        self._story.append(Told(self.elapsed, text))
        self._draw()

    def show(self, picture: Picture) -> None:
        self._picture = picture
        self._draw()

    def __enter__(self) -> Self:
        self._write(_ENTER)
        self._draw()
        return self

    def __exit__(self, *error: object) -> None:
        # It may be because the terminal is gone that this ends.
        with contextlib.suppress(OSError):
            self._write(_LEAVE)
            for told in self._story:
                print(told)

    def _draw(self) -> None:
        view = View(*shutil.get_terminal_size(), self.ink)
        lines = draw(self._plan, self._picture, self._story, self.elapsed, view)
        self._write(_HOME + "\r\n".join(line + _CLEAR_LINE for line in lines) + _CLEAR_BELOW)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
