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

    Only who holds the lock may replace the file, and nobody removes it: otherwise two processes could each lock a file
    of this name. Its content, the id of the holder, is for people.
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

        `shared_folder` is a handle of the folder of `path`, if others may write to it. They may have linked any file of
        this user there, so the file must have no other name. Since it may have had one a moment ago, nothing is written
        to it: a new file takes its place.
        """
        if shared_folder is None:
            file = _open_locked(self.path, _FLAGS, self._mode)
            _write_holder(file)
        else:
            file = _open_locked(self.path.name, _FLAGS, self._mode, shared_folder)
            try:
                self._check_own(os.fstat(file))
                file = self._replaced(file, shared_folder)
            except OSError:
                os.close(file)
                raise
        self._file = file

    def in_place(self) -> bool:
        """Whether the lock is held, and its file is still at `path`: somebody may have removed it."""
        try:
            return self._file is not None and os.path.samestat(os.fstat(self._file), os.lstat(self.path))
        except OSError:
            return False

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _check_own(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"it is not a lock file of user {os.geteuid()}; remove it", str(self.path))

    def _replaced(self, file: int, folder: int) -> int:
        """A new file, locked, in place of one that is locked. Whoever has opened the former finds, once it has that
        lock, that the file is not in place any more."""
        name = f"{self.path.name}.{os.urandom(4).hex()}"
        other = _open_locked(name, _FLAGS | os.O_EXCL, self._mode, folder)
        try:
            _write_holder(other)
            os.rename(name, self.path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.close(other)
            raise
        os.close(file)
        return other


def _open_locked(path: str | Path, flags: int, mode: int, folder: int | None = None) -> int:
    """The file, which is still at the path once the lock is held. Raises `LockHeld` and `OSError`."""
    file = os.open(path, flags, mode, dir_fd=folder)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file), os.stat(path, dir_fd=folder, follow_symlinks=False)):
            raise OSError(errno.EBUSY, "another process has just replaced it", str(path))
    except BlockingIOError as error:
        holder = os.pread(file, 32, 0).decode(errors="replace").strip()
        os.close(file)
        raise LockHeld(holder if holder.isdecimal() else "unknown") from error
    except OSError:
        os.close(file)
        raise
    return file


def _write_holder(file: int) -> None:
    # A full disk may have no room for the process id. The lock holds without it.
    with contextlib.suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
