"""The lock file."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sidecar.model.lock_file import LockFile, LockHeld


def test_a_lock_that_is_held_names_its_holder_until_it_is_released(tmp_path: Path) -> None:
    first, second = LockFile(tmp_path / "lock"), LockFile(tmp_path / "lock")
    first.take()
    with pytest.raises(LockHeld) as refused:
        second.take()
    assert refused.value.holder == str(os.getpid())
    assert first.held
    assert not second.held
    first.release()
    second.take()
    assert second.held


def test_a_lock_file_that_somebody_removed_or_replaced_is_not_in_place(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "lock")
    assert not lock.in_place()
    lock.take()
    assert lock.in_place()
    lock.path.unlink()
    assert not lock.in_place()
    lock.path.touch()
    assert not lock.in_place()


@contextmanager
def handle(folder: Path) -> Iterator[int]:
    number = os.open(folder, os.O_DIRECTORY)
    yield number
    os.close(number)


def of_another_user(path: Path) -> None:
    path.touch()
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 65_534, -1)


def with_another_name(path: Path) -> None:
    path.with_name("other").write_text("precious")
    os.link(path.with_name("other"), path)


def linked(path: Path) -> None:
    path.with_name("other").write_text("precious")
    path.symlink_to("other")


@pytest.mark.parametrize("put", [of_another_user, with_another_name, linked, os.mkfifo, Path.mkdir])
def test_in_a_shared_folder_only_a_file_of_ones_own_is_taken(tmp_path: Path, put: Callable[[Path], None]) -> None:
    lock = LockFile(tmp_path / "lock")
    put(lock.path)
    with handle(tmp_path) as folder, pytest.raises(OSError, match="lock"):
        lock.take(folder)
    assert not lock.held
    if (tmp_path / "other").exists():
        assert (tmp_path / "other").read_text() == "precious"


def test_in_a_shared_folder_the_file_of_a_process_that_has_ended_is_taken(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "lock")
    lock.path.write_text("another process")
    with handle(tmp_path) as folder:
        lock.take(folder)
    assert lock.in_place()
    assert lock.path.read_text() == f"{os.getpid()}\n"


def test_in_a_shared_folder_nothing_is_written_to_a_file_that_was_there(tmp_path: Path) -> None:
    """It may be one whose other name was removed a moment ago."""
    lock = LockFile(tmp_path / "lock")
    lock.path.write_text("precious")
    with lock.path.open() as kept, handle(tmp_path) as folder:
        lock.take(folder)
        assert kept.read() == "precious"


def test_whoever_waited_for_a_file_that_was_replaced_does_not_get_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = LockFile(tmp_path / "lock"), LockFile(tmp_path / "lock")
    flock = fcntl.flock

    def take_first(file: int, operation: int) -> None:
        """The first takes the lock while the second has the file open."""
        monkeypatch.undo()
        with handle(tmp_path) as folder:
            first.take(folder)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", take_first)
    with handle(tmp_path) as folder, pytest.raises(OSError, match="another process has just replaced it"):
        second.take(folder)
    assert first.in_place()
    assert not second.held
