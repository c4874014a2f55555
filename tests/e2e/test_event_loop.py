"""The sidecar on each of its event loops, and that it says which."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from offramp import connect
from tests.e2e.harness import Sidecar, offramp

#: by the loop, what chooses it where uvloop is installed
LOOPS: dict[str, Mapping[str, str]] = {"uvloop": {"OFFRAMP_PURE": "0"}, "asyncio": {"OFFRAMP_PURE": "1"}}


@pytest.mark.parametrize("loop", LOOPS)
def test_records_are_handled_and_a_signal_drains_on_either_loop(tmp_path: Path, loop: str) -> None:
    with Sidecar(tmp_path, environ=LOOPS[loop]) as sidecar:
        sidecar.publish("orders", [b"%d" % number for number in range(20)])
        with connect("orders", address=sidecar.target) as consumer:
            left = 20
            while left:
                batch = next(consumer)
                left -= len(batch)
                batch.ack()
        said = offramp("status", "--json", "--address", sidecar.target)
        assert json.loads(said.stdout)["runtime"]["event loop"].split()[0] == loop
        assert f", event loop {loop}" in offramp("status", "--address", sidecar.target).stdout
        assert sidecar.terminate() == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_the_version_says_which_loop_a_sidecar_would_run_on(loop: str) -> None:
    said = offramp("version", "--json", env={**os.environ, **LOOPS[loop]})
    assert json.loads(said.stdout)["event loop"].split()[0] == loop
