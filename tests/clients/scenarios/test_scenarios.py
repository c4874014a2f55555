"""Every client plays every scenario over every transport. See clients/SCENARIOS.md."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.scenarios import holding, outcomes, refusals, sidecars, travel  # noqa: F401 - they register
from tests.clients.scenarios.clients import CLIENTS, ROOT, Client
from tests.clients.scenarios.conftest import TRANSPORTS, SharedSidecar, make_stage
from tests.clients.scenarios.registry import SCENARIOS
from tests.clients.scenarios.stage import Stage, Transport


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    chosen.require()
    return chosen


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    chosen: Transport = request.param
    return chosen


@pytest.fixture(params=SCENARIOS)
def stage(
    request: pytest.FixtureRequest,
    client: Client,
    transport: Transport,
    shared_sidecar: SharedSidecar,
    tmp_path: Path,
) -> Iterator[Stage]:
    yield from make_stage(SCENARIOS[request.param], client, transport, shared_sidecar, tmp_path)


def test_scenario(stage: Stage) -> None:
    SCENARIOS[stage.scenario].play(stage)


def test_the_scenarios_are_those_that_are_described() -> None:
    described = re.findall(r"^### (\w+)$", (ROOT / "clients/SCENARIOS.md").read_text(), re.MULTILINE)
    assert sorted(described) == sorted(SCENARIOS)
