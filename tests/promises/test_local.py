"""The promises on the embedded broker."""

from pathlib import Path

import pytest

from tests.brokers.harness import Harness
from tests.brokers.local.harness import LocalHarness
from tests.promises.suite import Promises


class TestLocal(Promises):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return LocalHarness(tmp_path / "data")
