"""What a worker notes, before it says so to the sidecar: it is on the disk when `note` returns."""

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class Word(StrEnum):
    TOOK = "took"
    ACKED = "acked"
    #: asked for it again
    NACKED = "nacked"
    #: rejected it
    REJECTED = "rejected"
    #: the sidecar says that an ack counts
    SETTLED = "settled"


class Spot(NamedTuple):
    """A record of the one topic there is."""

    lane: int
    position: int


class Entry(NamedTuple):
    #: seconds on a clock that all processes of the machine share
    at: float
    word: Word
    spot: Spot
    #: what a delivery said
    attempt: int
    possibly_processed: bool
    #: of its key and value, where it was taken
    digest: str = ""
    #: of the batch: a process may have a record twice
    lease: str = ""


def digest_of(key: bytes | None, value: bytes | None) -> str:
    """Short, and the same in every language: journals hold no payloads."""
    return hashlib.sha1((key or b"") + b"\0" + (value or b"")).hexdigest()[:12]


def place_of_ref(ref: str) -> int:
    """What Pulsar (ledger:entry:index), Redis (milliseconds-sequence) or NATS (sequence-time) calls a record, as a
    number that grows as those do."""
    first, second, *third = map(int, re.split("[:-]", ref))
    return (first << 80) + (second << 40) + sum(third)


class Journal:
    """Any thread may write; a line is written whole."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.Lock()

    def note(
        self, word: Word, lease: bytes, records: Iterable[tuple[int, int, int, bool] | tuple[int, int, int, bool, str]]
    ) -> None:
        """`records` are lane, position, attempt, possibly_processed and, if it is taken, the digest of each."""
        line = json.dumps([time.monotonic(), word, lease.hex(), [*records]]) + "\n"
        with self._lock:
            os.write(self._file, line.encode())
            os.fsync(self._file)


class Reader:
    """Reads a journal that may still grow: each call returns what came since the last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def news(self) -> Iterator[Entry]:
        with self.path.open("rb") as file:
            file.seek(self._offset)
            # The last line may be half written forever: its writer was killed before it could act on it.
            *lines, _ = file.read().split(b"\n")
        for line in lines:
            self._offset += len(line) + 1
            at, word, lease, records = json.loads(line)
            for lane, place, *told in records:
                position = place_of_ref(place) if isinstance(place, str) else place
                yield Entry(at, Word(word), Spot(lane, position), *told, lease=lease)
