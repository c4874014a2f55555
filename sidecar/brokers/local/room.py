"""Whether a disk has room for us. Only trying tells: a quota is not the disk's, and what is free may be for others."""

import contextlib
import errno
import os
from pathlib import Path

#: a full disk, a quota that is used up, a file that may not become larger
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: a file system that cannot allocate at once; glibc writes by itself then, other libraries do not
_NO_ALLOCATION = (errno.EOPNOTSUPP, errno.EINVAL)
#: bytes; as much as the smallest reserve, because a write that failed may have left some of what it was to take
_PROBE_BYTES = 1 << 20


def is_no_room(error: OSError) -> bool:
    """The file system has said that there is no room; anything else is a trouble of another kind."""
    return error.errno in _NO_ROOM


def is_used_up(folder: Path) -> bool:
    """True if a file of a megabyte finds no room there. Leaves nothing behind."""
    probe = folder / "offramp.probe"
    try:
        handle = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            allocate(handle, _PROBE_BYTES)
            # Over a network, this is where a quota is told.
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        return is_no_room(error)
    finally:
        with contextlib.suppress(OSError):
            os.remove(probe)
    return False


def allocate(handle: int, size: int) -> None:
    """Give a file exactly this size, with blocks behind all of it. Raises `OSError`."""
    status = os.fstat(handle)
    # A file may have its size and no blocks behind it (a copy, a restored backup).
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
