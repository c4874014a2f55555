"""Opening a data directory of the embedded broker: who may use it, and which files are refused, not replaced."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sidecar.brokers.local.folder import Folder
from sidecar.model.errors import Corrupt, OfframpError, StartError
from tests.brokers.harness import consuming, numbered, publish
from tests.brokers.local.harness import execute, running, stored
from tests.event_loop import on_event_loop

HOLDER = """
import asyncio, sys
from pathlib import Path
from tests.brokers.harness import publish
from tests.brokers.local.harness import running

async def main():
    async with running(Path(sys.argv[1])) as broker:
        await publish(broker, "topic", b"from the other process")
        print("open", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Other users can enter and use it, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        folder.chmod(0o777)
        yield folder


@on_event_loop
async def test_a_second_broker_on_the_directory_is_refused_with_the_process_that_has_it(tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        with pytest.raises(StartError, match=rf"{tmp_path} is in use by process {os.getpid()}"):
            async with running(tmp_path):
                pass
        await publish(first, "topic", b"still here")
        assert await stored(first, "topic") == [b"still here"]


@on_event_loop
async def test_a_directory_whose_process_was_killed_is_free_at_once(tmp_path: Path) -> None:
    with _holder(tmp_path) as holder:
        assert f"in use by process {holder.pid}" in await _refusal(tmp_path, StartError)
    async with running(tmp_path) as broker:
        assert await stored(broker, "topic") == [b"from the other process"]


@on_event_loop
async def test_a_directory_that_cannot_be_created_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    assert "cannot be used: Not a directory" in await _refusal(tmp_path / "file" / "data", StartError)


@on_event_loop
async def test_a_directory_that_cannot_be_written_to_is_refused(public_folder: Path) -> None:
    public_folder.chmod(0o555)
    with without_root():
        assert "cannot be used: Permission denied" in await _refusal(public_folder, StartError)


@pytest.mark.parametrize("mode", [0o000, 0o444])
@on_event_loop
async def test_a_file_that_may_not_be_read_and_written_is_refused(public_folder: Path, mode: int) -> None:
    await _fill(public_folder)
    for file in public_folder.iterdir():
        file.chmod(0o666)
    (public_folder / "offramp.db").chmod(mode)
    with without_root():
        text = await _refusal(public_folder, StartError)
    assert f"{public_folder / 'offramp.db'} cannot be used: " in text
    assert "may read and write" in text


@on_event_loop
async def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offramp.db").mkdir()
    assert f"{tmp_path / 'offramp.db'} cannot be used: unable to open" in await _refusal(tmp_path, StartError)


@on_event_loop
async def test_a_directory_that_cannot_be_synced_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _fill(tmp_path)

    def fail(folder: Folder) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Folder, "sync", fail)
    assert "cannot be used: Input/output error" in await _refusal(tmp_path, StartError)


@on_event_loop
async def test_a_link_that_leads_nowhere_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """Such as a link to a volume that is not mounted."""
    target = tmp_path / "unmounted" / "offramp.db"
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "offramp.db").symlink_to(target)
    assert f"is a link to {target}, which does not exist" in await _refusal(folder, StartError)
    assert (folder / "offramp.db").is_symlink()


@on_event_loop
async def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "data").mkdir()
    await _fill(tmp_path / "volume")
    (tmp_path / "data" / "offramp.db").symlink_to(tmp_path / "volume" / "offramp.db")
    async with running(tmp_path / "data") as broker:
        assert await stored(broker, "topic") == numbered(200)


@pytest.mark.parametrize("content", [b"", b"garbage, not a database" * 500, b"SQLite format 3\0" + bytes(5000)])
@on_event_loop
async def test_a_file_that_is_not_a_database_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "offramp.db"
    file.write_bytes(content)
    text = await _refusal(tmp_path, Corrupt)
    assert str(file) in text
    # A journal that stays there would be written into the backup.
    assert "Move offramp.db, offramp.db-wal and offramp.db-shm away, all three" in text
    assert text.index("-wal") < text.index("Then restore the file from a backup, or start with nothing")
    assert file.read_bytes() == content


@on_event_loop
async def test_a_file_whose_inner_pages_are_overwritten_is_refused(tmp_path: Path) -> None:
    await _fill(tmp_path)
    file = tmp_path / "offramp.db"
    content = bytearray(file.read_bytes())
    # Page 1 holds the schema; the tables that the catalog reads come next.
    content[4096 : 4096 * 12] = b"\xff" * 4096 * 11
    file.write_bytes(content)
    assert str(file) in await _refusal(tmp_path, Corrupt)
    assert file.read_bytes()[4096:] == content[4096:]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE lanes SET number = 'first' WHERE number = 0",
        "UPDATE lanes SET number = 70 WHERE number = 0",
        "UPDATE lanes SET start = x'00'",
        "UPDATE blocks SET lengths = 'text'",
        "UPDATE blocks SET stop = start",
        "UPDATE blocks SET bytes_before = 'none'",
        "UPDATE topics SET name = x'ff'",
    ],
)
@on_event_loop
async def test_malformed_rows_are_refused_as_damage(tmp_path: Path, change: str) -> None:
    """As SQLite returns them when a page stands in the place of another."""
    await _fill(tmp_path)
    execute(tmp_path, change)
    assert str(tmp_path / "offramp.db") in await _refusal(tmp_path, Corrupt)


@pytest.mark.parametrize("change", ["position = 'far'", "position = -1", "beyond = 'text'", "beyond = x'0102'"])
@on_event_loop
async def test_a_malformed_cursor_is_refused_as_damage(tmp_path: Path, change: str) -> None:
    async with running(tmp_path) as broker, consuming(broker, "topic"):
        pass
    execute(tmp_path, f"UPDATE cursors SET {change}")
    with pytest.raises(Corrupt, match="is damaged"):
        async with running(tmp_path) as broker, consuming(broker, "topic"):
            pass


@on_event_loop
async def test_a_missing_file_whose_journal_is_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offramp.db-wal").write_bytes(b"records that were never copied")
    assert "it is missing, but its journal offramp.db-wal is there" in await _refusal(tmp_path, Corrupt)


@on_event_loop
async def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    execute(tmp_path, "CREATE TABLE other (column)")
    assert "is not a database of Offramp" in await _refusal(tmp_path, StartError)


@on_event_loop
async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    await _fill(tmp_path)
    execute(tmp_path, "PRAGMA user_version = 99")
    assert "written by a newer Offramp (format 99" in await _refusal(tmp_path, StartError)


@on_event_loop
async def test_a_refused_directory_can_be_opened_once_the_file_is_restored(tmp_path: Path) -> None:
    await _fill(tmp_path)
    shutil.copy(tmp_path / "offramp.db", tmp_path / "backup")
    (tmp_path / "offramp.db").write_bytes(b"broken")
    await _refusal(tmp_path, Corrupt)
    shutil.copy(tmp_path / "backup", tmp_path / "offramp.db")
    async with running(tmp_path) as broker:
        assert await stored(broker, "topic") == numbered(200)


@on_event_loop
async def test_an_unfinished_database_is_created_again(tmp_path: Path) -> None:
    (tmp_path / "offramp.db.new").write_bytes(b"killed while it was made")
    async with running(tmp_path) as broker:
        await publish(broker, "topic", b"value")
    assert not (tmp_path / "offramp.db.new").exists()


async def _fill(directory: Path) -> None:
    async with running(directory) as broker:
        await publish(broker, "topic", *numbered(200))


@contextmanager
def _holder(directory: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that has the directory open, and is killed."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(directory)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout
            assert holder.stdout.readline() == "open\n"
            yield holder
        finally:
            holder.kill()


@contextmanager
def without_root() -> Iterator[None]:
    """Without the rights of root, which may write everywhere."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


async def _refusal(directory: Path, kind: type[OfframpError]) -> str:
    with pytest.raises(kind) as raised:
        async with running(directory):
            pass
    return str(raised.value)
