"""What the sidecar refuses, a client reports in its own words, and does not try again forever."""

from tests.clients.scenarios.environment import ScenarioEnvironment
from tests.clients.scenarios.registry import scenario


@scenario()
def unknown_subscription(environment: ScenarioEnvironment) -> None:
    with environment.runner() as runner:
        reason, _, text = runner.next("refused").partition(" ")
        assert reason == "SUBSCRIPTION_NOT_FOUND"
        assert environment.subscription in text
        runner.passes()


@scenario()
def version_mismatch(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(1)
    with environment.runner() as runner:
        reason, _, text = runner.next("refused").partition(" ")
        assert reason == "VERSION"
        assert "999" in text
        runner.passes()
    environment.counts()
    assert environment.status().counters.delivered == 0


@scenario()
def refused_settlement(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(1)
    with environment.runner(records=1) as runner:
        runner.passes()
    environment.counts(acked=1, nacked=1, refused_settlements=1)
    environment.all_is_committed()
