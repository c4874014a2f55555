"""Draining when the platform asks the process to stop."""

import contextlib
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
    try:
        yield
    finally:
        restore()
