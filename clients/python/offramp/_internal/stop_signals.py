"""What happens when the platform asks the process to stop: all workers and consumers drain, and the app is told.

Python has one handler for each signal of a process, so there is one hub, which shares it among all who want to drain
with the handler that was there before: a web server's, say, which must learn of the signal too.
"""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    drain: Callable[[], None]
    every_time: bool
    #: the main thread, in which the app's own handler may raise, leaves the block once this has drained
    finishes: bool


class _Hub:
    """Keeps no lock: a signal handler may interrupt any of this. What threads share is changed in single steps."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        #: the handlers that were there before this hub's
        self._before: dict[int, Any] = {}
        #: a signal came, and those who were told of it have not all left yet
        self._stopping = False
        #: raised by the app's own handler
        self._raised: BaseException | None = None

    def add(self, entry: _Entry) -> None:
        if not self._entries:
            self._stopping, self._raised = False, None
        self._entries.append(entry)
        if threading.current_thread() is threading.main_thread():
            self._install(signal.SIGTERM)
            # Ctrl-C interrupts a loop of the app's own, unless the app has decided otherwise.
            if entry.finishes or not _is_default(signal.getsignal(signal.SIGINT)):
                self._install(signal.SIGINT)
        if self._stopping:
            entry.drain()

    def remove(self, entry: _Entry) -> None:
        # It is not there any more in a child that was forked in the block and leaves it.
        with contextlib.suppress(ValueError):
            self._entries.remove(entry)
        if not self._entries:
            self._uninstall()

    def raise_held_back(self) -> None:
        """What the app's own handler raised, unless others have yet to finish."""
        if self._raised is not None and not self._must_wait():
            raised, self._raised = self._raised, None
            raise raised

    def forget(self) -> None:
        """In a forked child there is nothing to drain."""
        self._entries.clear()
        self._uninstall()

    def _install(self, number: signal.Signals) -> None:
        handler = signal.getsignal(number)
        # None: a handler that was not installed from Python, which could not be restored. What is ignored stays so.
        if handler not in (None, signal.SIG_IGN, self._on_signal):
            self._before[number] = handler
            signal.signal(number, self._on_signal)

    def _uninstall(self) -> None:
        """Only the main thread can. After another one has left last, the hub's handler stays, and passes signals on."""
        if threading.current_thread() is threading.main_thread():
            while self._before:
                number, handler = self._before.popitem()
                # The app may have replaced it since.
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, handler)

    def _must_wait(self) -> bool:
        return any(entry.finishes for entry in self._entries)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        entries = [entry for entry in self._entries if entry.every_time or not self._stopping]
        handler = self._before.get(number, signal.SIG_DFL)
        if entries:
            self._stopping = True
            for entry in entries:
                entry.drain()
            if not _is_default(handler):
                self._call_own(handler, number, frame)
        elif callable(handler):
            handler(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def _call_own(self, handler: Callable[..., object], number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            # Raised here, a `sys.exit` would tear away the handlers of batches that are to be finished.
            if not self._must_wait():
                raise
            self._raised = error


def _is_default(handler: Any) -> bool:
    """Whether Python itself installed it, to end the process or what `asyncio.run` runs."""
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    return handler in (signal.SIG_DFL, signal.default_int_handler) or isinstance(runner, asyncio.Runner)


_hub = _Hub()


@contextlib.contextmanager
def drain_on_signals(
    drain: Callable[[], None],
    *,
    enabled: bool,
    finishes: bool = False,
    every_time: bool = False,
) -> Iterator[None]:
    """Within the block, the first SIGTERM or SIGINT calls `drain`, which must be safe in a signal handler.

    The hub handles them from when a block was entered in the main thread, which alone can install handlers, until all
    blocks of all threads have ended. The first signal calls every `drain`, then the app's own handler. Further signals
    act as they would without this: a second Ctrl-C interrupts. `every_time`: they call `drain` too. `finishes`: the
    block ends by itself once it has drained, and what the app's own handler raised is raised only then; without it,
    SIGINT is left to Python's own handler. Does nothing unless `enabled`.
    """
    if not enabled:
        yield
        return
    in_main_thread = threading.current_thread() is threading.main_thread()
    entry = _Entry(drain, every_time, finishes and in_main_thread)
    _hub.add(entry)
    try:
        yield
    finally:
        _hub.remove(entry)
    if in_main_thread:
        _hub.raise_held_back()


class _ForkHooks:
    """In a forked child signals act as they would have without the hub, from the start: they are blocked from before
    the fork until the handlers are restored."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def before(self) -> None:
        self._thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})

    def in_parent(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._thread.mask)

    def in_child(self) -> None:
        _hub.forget()
        self.in_parent()


_fork_hooks = _ForkHooks()
os.register_at_fork(
    before=_fork_hooks.before, after_in_parent=_fork_hooks.in_parent, after_in_child=_fork_hooks.in_child
)
