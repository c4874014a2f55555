"""What SQLite complains of, and what a person or the core can do about it."""

import os
import sqlite3
from pathlib import Path

from sidecar.brokers.local.room import is_used_up
from sidecar.brokers.local.rows import is_damage
from sidecar.model.errors import Corrupt, OfframpError, OutOfRoom, Unavailable

#: what SQLite knows to be a full disk
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
#: what it makes of a quota that is used up, or of one for files, and of a disk that fails
_UNWRITTEN = (
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
    sqlite3.SQLITE_CANTOPEN,
)

#: rights, a file system that is read-only, a folder in the place of a file
_FOR_GOOD = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)

#: what one statement may run into while others would not
_OF_ONE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG)
#: a part of the file that the disk does not give back
_UNREAD = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ)


def is_full(error: sqlite3.Error, path: Path) -> bool:
    """There is no room for the database at `path`. May write beside it to find out."""
    code = _code(error)
    return code in _FULL or (code in _UNWRITTEN and is_used_up(Path(os.path.realpath(path)).parent))


def may_be_of_one(error: sqlite3.Error) -> bool:
    """What was done may be the cause, so that something else may succeed. Not so if the disk cannot be written, or if
    others hold the file: who tried again and again would only wait again and again."""
    return _code(error) & 0xFF in _OF_ONE or _code(error) in _UNREAD


def is_for_good(error: sqlite3.Error, path: Path) -> bool:
    """It is about rights, or about what stands in the place of the file: trying again will not help."""
    return _code(error) & 0xFF in _FOR_GOOD and not is_full(error, path)


def translate(error: sqlite3.Error, path: Path) -> OfframpError:
    """What a person or the core can do about it."""
    if is_damage(error) or _code(error) == sqlite3.SQLITE_NOTADB:
        return damaged(path, str(error))
    if is_full(error, path):
        return OutOfRoom(f"There is no room left on the disk of {path}. Free some, or lower `retention_bytes`.")
    # Errors that Python's own module makes have no name.
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return Unavailable(f"{path} cannot be used now: {error} ({name}).")


def damaged(path: Path, what: str) -> Corrupt:
    return Corrupt(
        f"{path} is damaged: {what}. Offramp never starts anew by itself. Move {path.name}, {path.name}-wal and "
        f"{path.name}-shm away, all three: what is in the journal would destroy another file. Then restore the file "
        "from a backup, or start with nothing."
    )


def _code(error: sqlite3.Error) -> int:
    # Errors that Python's own module makes carry none.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
