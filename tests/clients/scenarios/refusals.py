"""What the sidecar refuses, a client reports in its own words, and does not try again for ever."""

from tests.clients.scenarios.environment import ScenarioEnvironment
from tests.clients.scenarios.registry import scenario


@scenario()
def unknown_subscription(environment: ScenarioEnvironment) -> None:
    with environment.runner() as runner:
        assert environment.subscription in runner.next("refused")
        runner.passes()


@scenario()
def version_mismatch(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(1)
    with environment.runner() as runner:
        assert "999" in runner.next("refused")
        runner.passes()
    environment.counts()
    assert environment.status().counters.delivered == 0
