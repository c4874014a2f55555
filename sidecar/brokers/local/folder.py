"""The data directory: where its files are, and who may use it."""

import os
from pathlib import Path

from sidecar.model.errors import StartError
from sidecar.model.lock_file import LockFile, LockHeld


class Folder:
    """A data directory, held by this process from `take` to `leave`. See `LockFile`: a kill -9 leaves nothing to clean
    up."""

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
        """Make sure that the lock is still the one that others meet. False: it was removed, so that somebody else may
        have used the directory in between; from now on it is ours again.

        Raises `StartError` if somebody else uses it now, or if it is gone."""
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
