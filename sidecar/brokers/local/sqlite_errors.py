"""SQLite's errors as ours, and checks of rows that come from a file that may be damaged."""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sidecar.brokers.local import disk_space
from sidecar.model.errors import Corrupt, OfframpError, OutOfRoom, Unavailable

#: what SQLite knows to be a full disk
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
#: how it reports a quota that is used up, or one for files, and a disk that fails
_UNWRITTEN = (
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
    sqlite3.SQLITE_CANTOPEN,
)
#: missing rights, a read-only file system, a folder in the place of the file
_PERMANENT = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
#: errors that one statement may raise while others would not
_OF_A_STATEMENT = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG)
#: a part of the file cannot be read from the disk
_UNREAD = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ)
#: types of columns, for error messages
_TYPE_NAMES = {int: "a number", str: "a name", bytes: "bytes"}


class MalformedRow(sqlite3.DatabaseError):
    """A row that Offramp cannot have written.

    SQLite notices a page that is not a page, but returns rows of a page that stands in the place of another: columns
    are missing then, or hold something else. That counts as damage like what SQLite finds itself.
    """

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def check_row(row: tuple[Any, ...], *types: type) -> tuple[Any, ...]:
    """Returns the row if its columns have these types. Raises `MalformedRow`."""
    for value, wanted in zip(row, types, strict=True):
        if type(value) is not wanted:
            raise MalformedRow(f"a row holds {str(value)[:40]!r} where it should hold {_TYPE_NAMES[wanted]}")
    return row


def check_rows(rows: Iterable[tuple[Any, ...]], *types: type) -> Iterator[tuple[Any, ...]]:
    """Like `check_row`, row by row."""
    return (check_row(row, *types) for row in rows)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file does not hold what was written: found by SQLite, or by us."""
    return _code(error) & 0xFF == sqlite3.SQLITE_CORRUPT


def is_disk_full(error: sqlite3.Error, path: Path) -> bool:
    """Whether there is no space for the database at `path`. May write beside it to find out."""
    code = _code(error)
    return code in _FULL or (code in _UNWRITTEN and disk_space.is_full(Path(os.path.realpath(path)).parent))


def is_of_a_statement(error: sqlite3.Error) -> bool:
    """Whether the statement may be the cause, so that other statements may succeed. Not if the disk cannot be written
    or others have locked the file: each further try would only wait again."""
    return _code(error) & 0xFF in _OF_A_STATEMENT or _code(error) in _UNREAD


def is_permanent(error: sqlite3.Error, path: Path) -> bool:
    """Whether it is about rights, or what is in the place of the file, so that a retry will not help."""
    return _code(error) & 0xFF in _PERMANENT and not is_disk_full(error, path)


def translate(error: sqlite3.Error, path: Path) -> OfframpError:
    """The error as one of ours, with what to do about it."""
    if is_damage(error) or _code(error) == sqlite3.SQLITE_NOTADB:
        return damaged(path, str(error))
    if is_disk_full(error, path):
        return OutOfRoom(f"There is no room left on the disk of {path}. Free some, or lower `retention_bytes`.")
    # Errors that Python's own module raises have no name.
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return Unavailable(f"{path} cannot be used now: {error} ({name}).")


def damaged(path: Path, what: str) -> Corrupt:
    return Corrupt(
        f"{path} is damaged: {what}. Offramp never starts a new file by itself. Move {path.name}, {path.name}-wal and "
        f"{path.name}-shm away, all three: what is in the journal would destroy another file. Then restore the file "
        "from a backup, or start with nothing."
    )


def _code(error: sqlite3.Error) -> int:
    # Errors that Python's own module raises have none.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
