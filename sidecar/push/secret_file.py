"""A secret that is read again when its file changes."""

import os
from collections.abc import Callable
from typing import Generic, TypeVar

from sidecar.model import files
from sidecar.model.errors import StartError
from sidecar.observability.logs import Log

#: seconds between two looks at the file
_CHECK_INTERVAL = 1.0

T = TypeVar("T")
log = Log("push")


class SecretFile(Generic[T]):
    def __init__(self, setting: str, path: str, parse: Callable[[bytes], T]) -> None:
        """Raises `StartError`, also for a file that every user can read."""
        self._setting = setting
        self._path = path
        self._parse = parse
        self._checked = 0.0
        self._seen = self._state()
        self._value = parse(files.read_secret(setting, path))

    def value(self, now: float) -> T:
        """The content of the file, at most a second old. While it cannot be used, the previous content."""
        if now - self._checked >= _CHECK_INTERVAL:
            self._checked = now
            state = self._state()
            if state != self._seen:
                self._seen = state
                try:
                    self._value = self._parse(files.read_secret(self._setting, self._path))
                except StartError as error:
                    log.error("cannot use a changed file; the previous content stays in use", error=error)
        return self._value

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size
