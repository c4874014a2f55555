"""A lock file, which one process at a time can hold."""

import contextlib
import fcntl
import os
from pathlib import Path


class LockHeld(Exception):
    """Another process holds the lock file."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"held by process {holder}")
        #: the id of the process that holds it, or `unknown`
        self.holder = holder


class LockFile:
    """An exclusive lock, which the kernel releases when the process ends, however it ends.

    The file is never removed: otherwise two processes could each lock a file of this name. Its content, the id of the
    holder, is for people.
    """

    def __init__(self, path: Path, mode: int = 0o600) -> None:
        self.path = path
        self._mode = mode
        self._file: int | None = None

    @property
    def held(self) -> bool:
        return self._file is not None

    def take(self) -> None:
        """Raises `LockHeld` and `OSError`. Does not block."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._mode)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise LockHeld(holder) from error
        except OSError:
            os.close(file)
            raise
        self._file = file
        # A full disk may have no room for the process id. The lock holds without it.
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)

    def in_place(self) -> bool:
        """Whether the lock is held, and its file is still at `path`: somebody may have removed it."""
        try:
            return self._file is not None and os.path.samestat(os.fstat(self._file), os.stat(self.path))
        except OSError:
            return False

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
