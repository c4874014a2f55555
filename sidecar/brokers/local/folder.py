"""The data directory: where its files are, and who may use it."""

import contextlib
import fcntl
import os
from pathlib import Path

from sidecar.model.errors import StartError


class Folder:
    """A data directory, held by this process from `take` to `leave`.

    The kernel drops the lock with the process, however it ends, so that nothing is left to clean up after a
    kill -9. The lock file stays; what it says is only for people.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "offramp.db"
        self.reserve = path / "offramp.reserve"
        self._lock_file = path / "offramp.lock"
        self._lock: int | None = None

    def take(self) -> None:
        """Raises `StartError` if the directory is unusable or in use."""
        try:
            self.path.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise self.unusable(error) from error
        self._take_lock()

    def keep(self) -> bool:
        """Make sure that the lock is still the one that others meet. False: it was removed, so that somebody else may
        have used the directory in between; from now on it is ours again.

        Raises `StartError` if somebody else uses it now, or if it is gone."""
        if self._holds_lock():
            return True
        self.leave()
        self._take_lock()
        return False

    def leave(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _holds_lock(self) -> bool:
        try:
            return self._lock is not None and os.path.samestat(os.fstat(self._lock), os.stat(self._lock_file))
        except OSError:
            return False

    def _take_lock(self) -> None:
        try:
            lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise self.unusable(error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            if not isinstance(error, BlockingIOError):
                raise self.unusable(error) from error
            raise StartError(
                f"The data directory {self.path} is in use by process {holder}, which holds {self._lock_file}. "
                "One sidecar at a time can use it: stop that one, or give this one another `directory`."
            ) from error
        self._lock = lock
        # A full disk may have no room for the pid. The lock is what counts.
        with contextlib.suppress(OSError):
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)

    def sync(self) -> None:
        """Make the names of the files in the directory survive a power loss."""
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def unusable(self, error: OSError) -> StartError:
        which = f": {error.filename}" if error.filename else ""
        return StartError(
            f"The data directory {self.path} cannot be used: {error.strerror}{which}. It must have room and be "
            f"writable for user {os.getuid()}, with all that is in it; or set another `directory`."
        )
