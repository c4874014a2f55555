"""Sidecars whose time of day jumps, by libfaketime: it stands between a process and its C library.

A time namespace would not do: it moves only the clocks that count from the start of the machine, and only before a
process begins. Those are left alone here, as they are by whoever sets the time of a machine.
"""

from pathlib import Path

_PLACES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1", "/usr/lib64/faketime/*.so.1")

MISSING = "no clock jumps: libfaketime is not there (Debian: apt-get install faketime)"


def library() -> Path | None:
    return next((found for place in _PLACES for found in sorted(Path("/").glob(place.lstrip("/")))), None)


class Clock:
    """The time of day of one sidecar, over its restarts."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jump(0.0)

    def jump(self, seconds: float) -> None:
        """It is off by so much from now on."""
        # In one step: the library reads it whenever it likes.
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+g}s\n")
        new.rename(self._file)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            # seconds until it looks again
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
