"""Rows as they come from a database file that may be damaged.

SQLite notices a page that is none, but hands out a page that stands where another should be: columns are missing then,
or hold something else. That is a damage like those that it finds itself, and is told as one.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any


class Malformed(sqlite3.DatabaseError):
    """A row that nobody wrote."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def is_damage(error: sqlite3.Error) -> bool:
    """Found by SQLite or by us: what the file holds is not what was written."""
    # Errors that Python's own module makes carry no code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF == sqlite3.SQLITE_CORRUPT


def typed(row: tuple[Any, ...], *types: type) -> tuple[Any, ...]:
    """The row, if its columns are of these types. Raises `Malformed`."""
    for value, wanted in zip(row, types, strict=True):
        if type(value) is not wanted:
            raise Malformed(f"a row holds {str(value)[:40]!r} where it should hold {_NAMES[wanted]}")
    return row


def all_typed(rows: Iterable[tuple[Any, ...]], *types: type) -> Iterator[tuple[Any, ...]]:
    """Raises `Malformed`."""
    return (typed(row, *types) for row in rows)


_NAMES = {int: "a number", str: "a name", bytes: "bytes"}
