"""The embedded broker keeps the adapter contract."""

from pathlib import Path

import pytest

from tests.brokers.contract import AdapterContract
from tests.brokers.harness import Harness
from tests.brokers.local.harness import LocalHarness


class TestLocal(AdapterContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return LocalHarness(tmp_path)
