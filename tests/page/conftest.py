"""A browser and a sidecar for each test of the page."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Sidecar
from tests.page.browser import Browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for each file of tests: it takes seconds to start. Each test sets its properties."""
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    with Sidecar(tmp_path) as sidecar:
        yield sidecar
