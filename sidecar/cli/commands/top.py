"""
Show a running sidecar live: rates, lanes and their lag, what is in flight, and problems.

  offramp top
  offramp top orders --interval 500ms
  offramp top | tee top.log        not on a terminal: one line for each subscription, repeated

q or Ctrl-C quits, the arrow keys scroll.
"""

import argparse
import os
import queue
import select
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Self

import grpc

from offramp.v1 import admin_pb2
from sidecar.cli.cleaned import cleaned
from sidecar.cli.connection import CallError, address_of, check_reachable, connect
from sidecar.cli.parser import add_address, duration
from sidecar.cli.status_text import screen_lines, summary_lines
from sidecar.cli.terminal import Screen, single_keys
from sidecar.model.text import fit

_RECONNECT_INTERVAL = 1.0
_SCROLL = {b"\x1b[A": -1, b"\x1b[B": 1, b"\x1b[5~": -10, b"\x1b[6~": 10, b"k": -1, b"j": 1}
_QUIT = (b"q", b"Q", b"\x1b")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION", nargs="?", default="", help="only this subscription")
    parser.add_argument(
        "--interval", type=duration, default=1.0, metavar="DURATION", help="100ms or more (default: 1s)"
    )
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with suppress(KeyboardInterrupt):
        if sys.stdout.isatty() and sys.stdin.isatty():
            # Later a sidecar that is away is shown on the screen; one that is not there to begin with is an error.
            check_reachable(address_of(args))
            with _StatusWatcher(args) as watcher, single_keys() as keys, Screen() as screen:
                _Top(watcher, screen).run(keys)
        else:
            _print_lines(args)
    return 0


def _print_lines(args: argparse.Namespace) -> None:
    before: admin_pb2.Status | None = None
    with connect(args) as sidecar:
        for response in sidecar.admin.WatchStatus(_watch_request(args)):
            now = cleaned(response.status)
            for line in summary_lines(now, before):
                print(f"{datetime.now():%H:%M:%S} {line}", flush=True)
            before = now


def _watch_request(args: argparse.Namespace) -> admin_pb2.WatchStatusRequest:
    interval_ms = max(100, int(args.interval * 1000))
    return admin_pb2.WatchStatusRequest(subscription=args.subscription, interval_ms=interval_ms)


class _Top:
    """The live view on a terminal."""

    def __init__(self, watcher: "_StatusWatcher", screen: Screen) -> None:
        self._watcher = watcher
        self._screen = screen
        self._now: admin_pb2.Status | None = None
        self._before: admin_pb2.Status | None = None
        self._connection_error = ""
        self._scroll = 0

    def run(self, keys: int) -> None:
        """Draws each status until the user quits. Raises `CallError` if the sidecar returns an error."""
        watcher = self._watcher
        # The handler does not draw: it may run in the middle of another drawing.
        on_resize = signal.signal(signal.SIGWINCH, lambda number, frame: watcher.wake())
        try:
            while True:
                ready, _, _ = select.select([keys, watcher.fd], [], [])
                if keys in ready:
                    key = os.read(keys, 16)
                    if not key or key in _QUIT:
                        return
                    self._scroll = max(0, self._scroll + _SCROLL.get(key, 0))
                if watcher.fd in ready:
                    os.read(watcher.fd, 64)
                    while not watcher.updates.empty():
                        self._take(watcher.updates.get())
                self._draw()
        finally:
            signal.signal(signal.SIGWINCH, on_resize)

    def _take(self, update: admin_pb2.Status | CallError) -> None:
        if not isinstance(update, CallError):
            self._before, self._now, self._connection_error = self._now, update, ""
        elif update.connection_lost:
            self._connection_error = str(update)
        else:
            raise update

    def _draw(self) -> None:
        view = self._screen.view
        error = [view.ink.red(fit(f"! {self._connection_error}", view.width))] if self._connection_error else []
        below = replace(view, height=view.height - len(error))
        lines = screen_lines(self._now, self._before, below, self._scroll) if self._now is not None else ["connecting"]
        self._screen.draw([*error, *lines])


class _StatusWatcher:
    """A context in which a thread puts statuses, or what is wrong, into `updates`. Each makes `fd` readable.

    The thread reconnects when the connection is lost.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self.updates: queue.SimpleQueue[admin_pb2.Status | CallError] = queue.SimpleQueue()
        self.fd, self._wake_fd = os.pipe()
        self._ended = threading.Event()
        self._stream: grpc.Call | None = None
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._stream is not None:
            self._stream.cancel()
        self._thread.join(timeout=5)
        os.close(self.fd)
        os.close(self._wake_fd)

    def wake(self) -> None:
        """Makes `fd` readable without an update."""
        os.write(self._wake_fd, b"!")

    def _watch(self) -> None:
        while not self._ended.is_set():
            try:
                with connect(self._args) as sidecar:
                    stream = self._stream = sidecar.admin.WatchStatus(_watch_request(self._args))
                    for response in stream:
                        self._put(cleaned(response.status))
            except CallError as error:
                self._put(error)
            self._ended.wait(_RECONNECT_INTERVAL)

    def _put(self, update: admin_pb2.Status | CallError) -> None:
        if not self._ended.is_set():
            self.updates.put(update)
            self.wake()
