"""Disk space held back for the day when the disk is full."""

import contextlib
import os
from pathlib import Path

from sidecar.brokers.local.room import allocate, is_no_room


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
        """Make the file, or find it made. False when there is no room for it and `spare` bytes more.

        Raises `OSError` if something else is in the way."""
        try:
            self._make(spare)
            self.held = True
        except OSError as error:
            if not is_no_room(error):
                raise
            self.give_up()
        return self.held

    def hold_again(self) -> bool:
        """Make the file anew, if there is as much room again beside it: or it would be given up the next moment.

        Raises `OSError` as `hold` does."""
        return self.hold(spare=self.size)

    def give_up(self) -> None:
        """Free the space. Harmless when it is free already."""
        self.held = False
        with contextlib.suppress(OSError):
            os.remove(self._path)

    def _make(self, spare: int) -> None:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            allocate(handle, self.size + spare)
            os.ftruncate(handle, self.size)
            os.fsync(handle)
        finally:
            os.close(handle)
