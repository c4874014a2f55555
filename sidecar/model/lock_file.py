"""A lock file, which one process at a time can hold."""

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

#: Does not wait for the other end of a pipe, and follows no link: another process may have put it there.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


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

    def take(self, shared_folder: int | None = None) -> None:
        """Raises `LockHeld` and `OSError`. Does not block.

        `shared_folder` is a handle of the folder of `path`, if others may write to it. Then the file must be one that
        this user has made, with no other name: whoever holds the lock writes to it.
        """
        path = self.path if shared_folder is None else self.path.name
        file = os.open(path, _FLAGS, self._mode, dir_fd=shared_folder)
        try:
            if shared_folder is not None:
                self._check_own(os.fstat(file))
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
            return self._file is not None and os.path.samestat(os.fstat(self._file), os.lstat(self.path))
        except OSError:
            return False

    def _check_own(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"it is not a lock file of user {os.geteuid()}; remove it", str(self.path))

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
