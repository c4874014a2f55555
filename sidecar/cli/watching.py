"""Statuses of a sidecar as they come, from a thread that connects again when the sidecar was away."""

import argparse
import os
import queue
import threading
from types import TracebackType
from typing import Self

import grpc

from offramp.v1 import admin_pb2
from sidecar.cli.connection import CallError, connect

_RETRY_SECONDS = 1.0


def watch_request(args: argparse.Namespace) -> admin_pb2.WatchStatusRequest:
    interval_ms = max(100, int(args.interval * 1000))
    return admin_pb2.WatchStatusRequest(subscription=args.subscription, interval_ms=interval_ms)


class Watcher:
    """A context in which statuses, or what is wrong, arrive in `news`. Each makes `fd` readable."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self.news: queue.SimpleQueue[admin_pb2.Status | CallError] = queue.SimpleQueue()
        self.fd, self._bell = os.pipe()
        self._ended = threading.Event()
        self._stream: grpc.Call | None = None
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._stream is not None:
            self._stream.cancel()
        self._thread.join(timeout=5)
        os.close(self.fd)
        os.close(self._bell)

    def _watch(self) -> None:
        while not self._ended.is_set():
            try:
                with connect(self._args) as sidecar:
                    stream = self._stream = sidecar.admin.WatchStatus(watch_request(self._args))
                    for response in stream:
                        self._tell(response.status)
            except CallError as error:
                self._tell(error)
            self._ended.wait(_RETRY_SECONDS)

    def ring(self) -> None:
        """Makes `fd` readable without news."""
        os.write(self._bell, b"!")

    def _tell(self, news: admin_pb2.Status | CallError) -> None:
        if not self._ended.is_set():
            self.news.put(news)
            self.ring()
