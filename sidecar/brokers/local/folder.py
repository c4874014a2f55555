"""The data directory: its files, and its lock."""

import os
from pathlib import Path

from sidecar.model.errors import StartError
from sidecar.model.lock_file import LockFile, LockHeld


class Folder:
    """A data directory that this process holds from `take` to `leave`. A kill -9 leaves nothing to clean up, see
    `LockFile`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "offramp.db"
        self.reserve = path / "offramp.reserve"
        self._lock = LockFile(path / "offramp.lock", 0o640)

    def take(self) -> None:
        """Raises `StartError` if the directory is unusable or in use."""
        try:
            self.path.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise self.unusable(error) from error
        self._take_lock()

    def keep(self) -> bool:
        """Checks that the lock is in place, and takes it again if it is not. False: it was removed, so another process
        may have used the directory meanwhile.

        Raises `StartError` if another process uses the directory now, or if it is gone."""
        if self._lock.in_place():
            return True
        self.leave()
        self._take_lock()
        return False

    def leave(self) -> None:
        self._lock.release()

    def _take_lock(self) -> None:
        try:
            self._lock.take()
        except LockHeld as error:
            raise StartError(
                f"The data directory {self.path} is in use by process {error.holder}, which holds {self._lock.path}. "
                "One sidecar at a time can use it: stop that one, or give this one another `directory`."
            ) from error
        except OSError as error:
            raise self.unusable(error) from error

    def sync(self) -> None:
        """Makes the names of the files in the directory survive a power loss."""
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
