"""The database file: creating and opening it.

A topic has lanes; a lane has blocks; a block has records. Records are stored as finished frames, many in one row,
because for every row the reader and the writer wait for the interpreter's lock: beside a busy event loop, reading row
by row is twenty times slower than reading blocks.
"""

import contextlib
import os
import sqlite3
from pathlib import Path

from sidecar.brokers.local.folder import Folder
from sidecar.brokers.local.sqlite_errors import damaged, is_permanent, translate
from sidecar.model.errors import OfframpError, StartError

#: "OFRP": the application id that SQLite stores in the file
_APPLICATION = 0x4F465250
_VERSION = 1
_PAGE = 4096
#: seconds to wait for other connections that use the file
_BUSY_TIMEOUT = 5.0

_SCHEMA = f"""
PRAGMA page_size = {_PAGE};
PRAGMA auto_vacuum = INCREMENTAL;
BEGIN;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};

CREATE TABLE topics (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE lanes (
    id     INTEGER PRIMARY KEY,
    topic  INTEGER NOT NULL REFERENCES topics (id),
    number INTEGER NOT NULL,
    -- the first position that was not removed; the end of the lane is the end of its last block, or this
    start  INTEGER NOT NULL DEFAULT 0,
    UNIQUE (topic, number)
);

-- Blocks of a lane follow each other without gaps.
CREATE TABLE blocks (
    lane         INTEGER NOT NULL REFERENCES lanes (id),
    start        INTEGER NOT NULL,
    stop         INTEGER NOT NULL,
    -- bytes of frames in the lane before this block, removed ones included
    bytes_before INTEGER NOT NULL,
    -- the newest timestamp of its records
    newest_ms    INTEGER NOT NULL,
    -- when it was begun; all of it was written within a minute of that
    written_ms   INTEGER NOT NULL,
    -- crc32 of lengths and frames
    checksum     INTEGER NOT NULL,
    -- the length of each frame, 32 bits, little endian
    lengths      BLOB NOT NULL,
    frames       BLOB NOT NULL,
    PRIMARY KEY (lane, start)
);

CREATE TABLE groups (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE cursors (
    lane     INTEGER NOT NULL REFERENCES lanes (id),
    "group"  INTEGER NOT NULL REFERENCES groups (id),
    position INTEGER NOT NULL,
    -- runs settled beyond the position: start and stop of each, 64 bits, little endian
    beyond   BLOB NOT NULL,
    PRIMARY KEY (lane, "group")
) WITHOUT ROWID;

COMMIT;
PRAGMA journal_mode = WAL;
"""

# Added after the first release. Versions that do not know these can still use the file: what they store has no reach.
_REACH = "ALTER TABLE cursors ADD COLUMN reach INTEGER"
_READERS = """
CREATE TABLE IF NOT EXISTS readers (
    "group"  INTEGER PRIMARY KEY REFERENCES groups (id),
    -- the newest; older ones may not move the group's cursors
    token    INTEGER NOT NULL,
    name     TEXT NOT NULL,
    since_ms INTEGER NOT NULL
)
"""
_PUBLISH_IDS = """
CREATE TABLE IF NOT EXISTS publish_ids (
    topic      TEXT NOT NULL,
    id         TEXT NOT NULL,
    lane       INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    written_ms INTEGER NOT NULL,
    PRIMARY KEY (topic, id)
) WITHOUT ROWID
"""
_PUBLISH_IDS_BY_TIME = "CREATE INDEX IF NOT EXISTS publish_ids_by_time ON publish_ids (written_ms)"


def open_database(folder: Folder, reserve_bytes: int) -> sqlite3.Connection:
    """The writer's connection to the database, which is created if there is none.

    What it holds is durable when this returns. Raises `StartError`, `Corrupt`, `OutOfRoom`, `Unavailable`.
    """
    try:
        if not os.path.lexists(folder.database):
            _create(folder)
        return _open(folder, reserve_bytes)
    except sqlite3.Error as error:
        raise _refusal(error, folder.database) from error
    except OSError as error:
        raise folder.unusable(error) from error


def _open(folder: Folder, reserve_bytes: int) -> sqlite3.Connection:
    path = folder.database
    if not os.path.exists(path):
        raise StartError(
            f"{path} is a link to {os.readlink(path)}, which does not exist or cannot be reached. Mount what it leads "
            "to, or remove the link to start with nothing."
        )
    connection = _connect(path)
    try:
        _check(connection, path)
        connection.execute("PRAGMA synchronous = FULL")
        # Some builds overwrite what is removed with zeros by default, which doubles the work.
        connection.execute("PRAGMA secure_delete = OFF")
        # The journal must stay so small that the reserve has space for copying all of it into the database.
        connection.execute(f"PRAGMA wal_autocheckpoint = {max(64, reserve_bytes // 2 // _PAGE)}")
        connection.execute(f"PRAGMA journal_size_limit = {reserve_bytes}")
        # After a kill -9 the journal may hold what was written but not synced: sync it before anyone reads it.
        checkpoint(connection)
        # Creates the journal, so that its name is synced now and need not be synced at every commit.
        connection.execute(f"PRAGMA user_version = {_VERSION}")
        for statement in (_READERS, _PUBLISH_IDS, _PUBLISH_IDS_BY_TIME):
            connection.execute(statement)
        if not any(name == "reach" for _, name, *_ in connection.execute("PRAGMA table_info(cursors)")):
            connection.execute(_REACH)
        folder.sync()
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads. One thread at a time may use it."""
    connection = _connect(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def checkpoint(connection: sqlite3.Connection, timeout: float = _BUSY_TIMEOUT) -> bool:
    """Copies the journal into the database, so that the journal is written from its start again. It keeps its size on
    the disk, which lets settling continue when there is no other space.

    Waits at most `timeout` seconds for readers. False: some were still reading."""
    connection.execute(f"PRAGMA busy_timeout = {int(timeout * 1000)}").fetchall()
    try:
        ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_TIMEOUT * 1000)}").fetchall()
    return not busy


def journal_of(path: Path) -> Path:
    """The journal of the database. If `path` is a link, it is beside the file itself."""
    return Path(os.path.realpath(path) + "-wal")


def cut_journal(connection: sqlite3.Connection) -> None:
    """After a checkpoint, shortens the journal to the size of the reserve. SQLite does that with the first commit after
    a checkpoint, so this commits something that changes nothing."""
    connection.execute(f"PRAGMA user_version = {_VERSION}")


def _connect(path: Path) -> sqlite3.Connection:
    # rw: never creates a file, so that a missing one cannot become an empty one.
    uri = f"{path.resolve().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256)
    # A container with a read-only root has no folder for temporary files, and SQLite keeps what a statement may have to
    # undo in one as soon as it is larger than 64 KiB.
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def _create(folder: Folder) -> None:
    """Creates the file under another name until it is complete: an empty or partial `offramp.db` is always damage."""
    path = folder.database
    journal = path.with_name(path.name + "-wal")
    if journal.exists() and journal.stat().st_size:
        raise damaged(path, f"it is missing, but its journal {journal.name} is there")
    unfinished = path.with_name(path.name + ".new")
    for leftover in folder.path.glob(unfinished.name + "*"):
        leftover.unlink()
    unfinished.touch(mode=0o640)
    with contextlib.closing(_connect(unfinished)) as connection:
        connection.executescript(_SCHEMA)
    os.rename(unfinished, path)
    folder.sync()


def _refusal(error: sqlite3.Error, path: Path) -> OfframpError:
    if not is_permanent(error, path):
        return translate(error, path)
    return StartError(
        f"{path} cannot be used: {error}. It must be a file that user {os.getuid()} may read and write, and so must "
        f"{path.name}-wal and {path.name}-shm if they are there; or set another `directory`."
    )


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if not path.stat().st_size:
        raise damaged(path, "it is empty")
    ((application,),) = connection.execute("PRAGMA application_id").fetchall()
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    if application != _APPLICATION:
        raise StartError(f"{path} is not a database of Offramp. Set another `directory`.")
    if version > _VERSION:
        raise StartError(
            f"{path} was written by a newer Offramp (format {version}; this one knows {_VERSION}). Run that "
            "version, or set another `directory`."
        )
