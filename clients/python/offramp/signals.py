"""Draining when the platform asks the process to stop."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def draining_on(
    numbers: tuple[signal.Signals, ...], drain: Callable[[], None], *, polite: bool, sticky: bool = False
) -> Iterator[None]:
    """While this lasts, the first of these signals calls `drain`, which must be safe in a signal handler.

    Further signals act as they would have without this: a second Ctrl-C interrupts. `sticky`: they call `drain` too.
    `polite`: only where nobody else handles the signal. Outside of the main thread, where Python takes no signals, this
    does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {}

    def restore() -> None:
        while before:
            number, handler = before.popitem()
            signal.signal(number, handler)

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not sticky:
            restore()
        drain()

    for number in numbers:
        handler = signal.getsignal(number)
        # None is a handler that was not installed from Python, which could not be put back.
        if handler is not None and (not polite or handler is signal.SIG_DFL):
            before[number] = handler
            signal.signal(number, on_signal)
    _in_force.append(restore)
    try:
        yield
    finally:
        # Not there any more in a child that was forked in here, and comes out of here.
        with contextlib.suppress(ValueError):
            _in_force.remove(restore)
        restore()


class _Forks:
    """A forked child has nothing to drain, and whoever stops it means it: there the signals act as they would have
    without this, from the first moment on. Until then they wait."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def before(self) -> None:
        self._thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})

    def in_parent(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._thread.mask)

    def in_child(self) -> None:
        while _in_force:
            _in_force.pop()()
        self.in_parent()


_in_force: list[Callable[[], None]] = []
_forks = _Forks()
os.register_at_fork(before=_forks.before, after_in_parent=_forks.in_parent, after_in_child=_forks.in_child)
