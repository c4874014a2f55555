"""Sidecars for the scenarios: one that all scenarios of all clients share, and some that are alone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.scenarios.clients import Client
from tests.clients.scenarios.environment import ScenarioEnvironment, Transport, name_of
from tests.clients.scenarios.registry import SCENARIOS, Scenario
from tests.e2e.harness import Sidecar
from tests.servers.process import free_ports

TRANSPORTS: tuple[Transport, ...] = ("unix", "tcp")
#: the largest records are larger than a request may be by default
LISTEN = {"tcp": "127.0.0.1:0", "max_request_bytes": "16MiB"}

SharedSidecar = Callable[[Client], Sidecar]


@pytest.fixture(scope="session")
def shared_sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSidecar]:
    """One sidecar for each client, with a subscription for each of its scenarios, started when it is first needed."""
    running: dict[str, Sidecar] = {}

    def sidecar_of(client: Client) -> Sidecar:
        if client.name not in running:
            subscriptions = {}
            for scenario in SCENARIOS.values():
                for transport in TRANSPORTS:
                    if not scenario.alone:
                        subscriptions.update(scenario.place.subscriptions(name_of(scenario.name, transport)))
            sidecar = Sidecar(tmp_path_factory.mktemp("shared"), subscriptions=subscriptions, listen=LISTEN)
            running[client.name] = sidecar.start()
        return running[client.name]

    yield sidecar_of
    for sidecar in running.values():
        sidecar.__exit__(None, None, None)


def make_stage(
    scenario: Scenario, client: Client, transport: Transport, shared: SharedSidecar, folder: Path
) -> Iterator[ScenarioEnvironment]:
    if not scenario.alone:
        yield ScenarioEnvironment(shared(client), client, scenario.name, transport)
        return
    (port,) = free_ports(1)
    sidecar = Sidecar(
        folder,
        subscriptions=scenario.place.subscriptions(name_of(scenario.name, transport)),
        # A port that it has again after a restart.
        listen={**LISTEN, "tcp": f"127.0.0.1:{port}"},
        **scenario.settings,
    )
    address = sidecar.target if transport == "unix" else f"127.0.0.1:{port}"
    try:
        yield ScenarioEnvironment(sidecar, client, scenario.name, transport, address)
    finally:
        sidecar.__exit__(None, None, None)
