from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files are named as a user would: relative, so that messages are short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
