"""The lock file."""

import os
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
