"""Every client plays every scenario. See clients/SCENARIOS.md."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.scenarios import holding, outcomes, refusals, sidecars, travel  # noqa: F401 - they register
from tests.clients.scenarios.clients import CLIENTS, ROOT
from tests.clients.scenarios.conftest import TRANSPORTS, SharedSidecar, make_stage
from tests.clients.scenarios.environment import ScenarioEnvironment
from tests.clients.scenarios.registry import SCENARIOS

LONG = bool(os.environ.get("OFFRAMP_TEST_LONG"))


def cases() -> Iterator[Any]:
    """Every client plays every scenario: over both transports in the long form, over one in turn in the short form.

    The transports differ below the scenarios: each client has half of them over each.
    """
    for number, name in enumerate(SCENARIOS):
        for place, client in enumerate(CLIENTS):
            for transport in TRANSPORTS if LONG else [TRANSPORTS[(number + place) % len(TRANSPORTS)]]:
                yield pytest.param((name, client, transport), id=f"{name}-{client.name}-{transport}")


@pytest.fixture(params=cases())
def environment(
    request: pytest.FixtureRequest, shared_sidecar: SharedSidecar, tmp_path: Path
) -> Iterator[ScenarioEnvironment]:
    name, client, transport = request.param
    client.require()
    yield from make_stage(SCENARIOS[name], client, transport, shared_sidecar, tmp_path)


def test_scenario(environment: ScenarioEnvironment) -> None:
    SCENARIOS[environment.scenario].play(environment)


def test_the_scenarios_are_those_that_are_described() -> None:
    described = re.findall(r"^### (\w+)$", (ROOT / "clients/SCENARIOS.md").read_text(), re.MULTILINE)
    assert sorted(described) == sorted(SCENARIOS)
