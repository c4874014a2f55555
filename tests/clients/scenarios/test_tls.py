"""Every client plays scenarios over TLS, with a token, as it would with a sidecar of another pod."""

import os
from collections.abc import Iterator

import pytest

from tests.clients.scenarios import holding, outcomes, refusals, travel  # noqa: F401 - they register
from tests.clients.scenarios.clients import CLIENTS, Client
from tests.clients.scenarios.environment import ScenarioEnvironment, name_of
from tests.clients.scenarios.registry import SCENARIOS
from tests.e2e.harness import Sidecar
from tests.security.kit import TOKENS, Secured, secret_file, tcp_address

#: in the short form: settling, large records, there and back, a worker that dies with a batch, and a refusal
SHORT = ("settle_per_record", "large_records", "publish_and_reply", "killed_while_holding", "unknown_subscription")
#: what needs a sidecar of its own is played over the other transports
NAMES = [
    name for name, one in SCENARIOS.items() if not one.alone and (os.environ.get("OFFRAMP_TEST_LONG") or name in SHORT)
]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Secured, Sidecar]]:
    folder = tmp_path_factory.mktemp("tls")
    made = Secured(folder, app={"consume": "*", "publish": "*"})
    subscriptions = {}
    for client in CLIENTS:
        for name in NAMES:
            subscriptions.update(SCENARIOS[name].place.subscriptions(name_of(f"{name}-{client.name}", "tls")))
    listen = made.listen(max_request_bytes="16MiB")
    with made.sidecar(listen=listen, subscriptions=subscriptions) as sidecar:
        yield made, sidecar


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_scenario_over_tls(secured: tuple[Secured, Sidecar], client: Client, name: str) -> None:
    client.require()
    made, sidecar = secured
    access = {
        "OFFRAMP_CA": str(made.authority.certificate),
        "OFFRAMP_TOKEN_FILE": str(secret_file(made.folder / "mine", TOKENS["app"] + "\n")),
        "OFFRAMP_SERVER_NAME": "localhost",
    }
    environment = ScenarioEnvironment(sidecar, client, name, "tls", tcp_address(sidecar), access)
    environment.subscription = name_of(f"{name}-{client.name}", "tls")
    SCENARIOS[name].play(environment)
