"""Whether the disk is full, and space that is held back for that case."""

import contextlib
import errno
import os
from pathlib import Path

#: a full disk, a quota that is used up, a file that may not become larger
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: a file system that cannot allocate at once; glibc writes by itself then, other libraries do not
_NO_ALLOCATION = (errno.EOPNOTSUPP, errno.EINVAL)
#: bytes; as much as the smallest reserve, because a write that failed may have left some of what it was to take
_PROBE_BYTES = 1 << 20


class DiskReserve:
    """A file of a fixed size that is really allocated, and removed at the first "disk full".

    The space that it frees is for settling and retention. Publishing is refused until the reserve is made again.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.size = size
        #: False: the reserve is in use, so the disk is full
        self.held = False

    def hold(self, spare: int = 0) -> None:
        """Makes the file, unless it exists, if there is space for it and `spare` bytes more.

        Raises `OSError` for any other failure."""
        try:
            self._make(spare)
            self.held = True
        except OSError as error:
            if not _is_no_space(error):
                raise
            self.give_up()

    def give_up(self) -> None:
        """Frees the space. Harmless when it is free already."""
        self.held = False
        with contextlib.suppress(OSError):
            os.remove(self._path)

    def _make(self, spare: int) -> None:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            _allocate(handle, self.size + spare)
            os.ftruncate(handle, self.size)
            os.fsync(handle)
        finally:
            os.close(handle)


def is_full(folder: Path) -> bool:
    """Whether a file of a megabyte finds no space there. Leaves nothing behind.

    Only trying tells: a quota is not a property of the disk, and free space may be reserved for others."""
    probe = folder / "offramp.probe"
    try:
        handle = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            _allocate(handle, _PROBE_BYTES)
            # A network file system reports a quota here.
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        return _is_no_space(error)
    finally:
        with contextlib.suppress(OSError):
            os.remove(probe)
    return False


def _is_no_space(error: OSError) -> bool:
    return error.errno in _NO_SPACE


def _allocate(handle: int, size: int) -> None:
    """Gives a file exactly this size, with blocks behind all of it. Raises `OSError`."""
    status = os.fstat(handle)
    # A copy or a restored backup may have its size and no blocks behind it.
    if status.st_size == size and status.st_blocks * 512 >= size:
        return
    os.ftruncate(handle, 0)
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, 0, size)
            return
        except OSError as error:
            if error.errno not in _NO_ALLOCATION:
                raise
    piece = bytes(1 << 20)
    for at in range(0, size, len(piece)):
        os.pwrite(handle, piece[: size - at], at)
