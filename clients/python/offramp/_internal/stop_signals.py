"""Draining when the platform asks the process to stop."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def drain_on_signals(
    numbers: tuple[signal.Signals, ...],
    drain: Callable[[], None],
    *,
    enabled: bool,
    only_default: bool = False,
    every_time: bool = False,
) -> Iterator[None]:
    """Within the block, the first of these signals calls `drain`, which must be safe in a signal handler.

    Further signals act as they would have without this: a second Ctrl-C interrupts. `every_time`: they call `drain`
    too. `only_default`: leave signals alone for which the app has a handler. Does nothing unless `enabled`, and outside
    of the main thread, where Python handles no signals.
    """
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {}

    def restore() -> None:
        while before:
            number, handler = before.popitem()
            signal.signal(number, handler)

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not every_time:
            restore()
        drain()

    for number in numbers:
        handler = signal.getsignal(number)
        # None: a handler that was not installed from Python, which could not be restored.
        if handler is not None and (not only_default or handler is signal.SIG_DFL):
            before[number] = handler
            signal.signal(number, on_signal)
    _restores.append(restore)
    try:
        yield
    finally:
        # Not in the list any more in a child that was forked in the block and leaves it.
        with contextlib.suppress(ValueError):
            _restores.remove(restore)
        restore()


class _ForkHooks:
    """In a forked child there is nothing to drain: signals act there as they would have without this, from the start.
    The signals are blocked from before the fork until the handlers are restored."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def before(self) -> None:
        self._thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})

    def in_parent(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._thread.mask)

    def in_child(self) -> None:
        while _restores:
            _restores.pop()()
        self.in_parent()


#: restores the handlers of each block that is running
_restores: list[Callable[[], None]] = []
_fork_hooks = _ForkHooks()
os.register_at_fork(
    before=_fork_hooks.before, after_in_parent=_fork_hooks.in_parent, after_in_child=_fork_hooks.in_child
)
