"""A fake sidecar for the commands that call one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.fake_sidecar import FakeSidecar, serve


@pytest.fixture
def sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSidecar]:
    """Runs in the working directory of the test, and OFFRAMP_ADDRESS names it."""
    with serve(tmp_path) as fake:
        monkeypatch.setenv("OFFRAMP_ADDRESS", fake.address)
        monkeypatch.chdir(tmp_path)
        yield fake
