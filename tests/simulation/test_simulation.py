"""Random histories of the whole subscription keep all promises."""

import os
import subprocess
import sys

import pytest

from tests.simulation.campaign import SEED
from tests.simulation.history import run

LONG = bool(os.environ.get("OFFRAMP_TEST_LONG"))
HISTORIES = 20_000 if LONG else 2_000


@pytest.mark.timeout(6 * 3600 if LONG else 3600)
def test_no_history_breaks_a_promise_and_every_fault_and_promise_is_exercised() -> None:
    # In a process of its own, which has no threads of gRPC and so may fork for each core.
    command = [sys.executable, "-m", "tests.simulation", "--histories", str(HISTORIES), "--seed", str(SEED)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_seed_reproduces_its_history_exactly() -> None:
    assert run(42).fingerprint == run(42).fingerprint


def test_a_history_does_not_depend_on_how_python_hashes() -> None:
    prints = set()
    for hashes in ("1", "2"):
        code = "from tests.simulation.history import run; print([run(seed).fingerprint for seed in range(20, 26)])"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            check=True,
            capture_output=True,
            text=True,
        )
        prints.add(done.stdout)
    assert len(prints) == 1
