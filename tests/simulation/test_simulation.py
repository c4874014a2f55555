"""Random histories of the whole subscription keep all promises."""

import os
import subprocess
import sys

import pytest

from tests.simulation.campaign import SEED, campaign
from tests.simulation.coverage import EXPECTED
from tests.simulation.history import run

LONG = bool(os.environ.get("OFFRAMP_TEST_LONG"))
HISTORIES = 20_000 if LONG else 2_000


@pytest.mark.timeout(6 * 3600 if LONG else 600)
def test_no_history_breaks_a_promise_and_every_fault_and_promise_is_exercised() -> None:
    findings = campaign(HISTORIES, seed=SEED)
    assert not findings.failures, _explain(findings.failures[0].seed, findings.failures[0].violation)
    assert findings.neglected(EXPECTED) == []


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


def _explain(seed: int, violation: str) -> str:
    return f"{violation}\nonce more: python -m tests.simulation --seed {seed}"
