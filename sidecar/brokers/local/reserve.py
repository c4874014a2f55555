"""Disk space held back for the day when the disk is full."""

import contextlib
import os
from pathlib import Path


class Reserve:
    """A file of a fixed size that is really allocated, and given up at the first "disk full".

    What it frees is for settling and retention. Publishing is refused until it is made anew.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.size = size
        #: False: the reserve is in use, so the disk is full
        self.held = False

    def hold(self, spare: int = 0) -> bool:
        """Make the file, or find it made. False when there is no room for it and `spare` bytes more."""
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError:
            return False
        try:
            _allocate(handle, self.size + spare)
            os.ftruncate(handle, self.size)
            os.fsync(handle)
            self.held = True
        except OSError:
            self.give_up()
        finally:
            os.close(handle)
        return self.held

    def hold_again(self) -> bool:
        """Make the file anew, if there is as much room again beside it: or it would be given up the next moment."""
        return self.hold(spare=self.size)

    def give_up(self) -> None:
        """Free the space. Harmless when it is free already."""
        self.held = False
        with contextlib.suppress(OSError):
            os.remove(self._path)


def _allocate(handle: int, size: int) -> None:
    status = os.fstat(handle)
    # A file may have its size and no blocks behind it (a copy, a restored backup).
    if status.st_size == size and status.st_blocks * 512 >= size:
        return
    os.ftruncate(handle, 0)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
        return
    piece = bytes(1 << 20)
    for at in range(0, size, len(piece)):
        os.pwrite(handle, piece[: size - at], at)
