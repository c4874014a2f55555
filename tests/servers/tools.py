"""Programs that servers need. What is missing skips a test on a laptop and fails it in CI."""

import os
import shutil
from typing import NoReturn

import pytest


class Missing(Exception):
    """Something must be installed first; the text says how."""


_PACKAGES = {
    "java": "Java 17 or newer (Debian: apt-get install default-jre-headless)",
    "mvn": "Maven (Debian: apt-get install maven)",
    "redis-server": "Redis 7.0 or newer (Debian: apt-get install redis-server; as root, make servers does it)",
    "openssl": "OpenSSL (Debian: apt-get install openssl)",
}


def tool(name: str) -> str:
    """The path of a program. Raises `Missing`."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed; this needs {_PACKAGES[name]}")
    return found


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def give_up(missing: Missing | str) -> NoReturn:
    """Ends the test that cannot have what it needs: it is skipped on a laptop, and fails where all must be tested."""
    if in_ci():
        pytest.fail(f"{missing}; CI=true, so it is not skipped", pytrace=False)
    pytest.skip(str(missing))
