"""What the sidecar refuses, a client reports in its own words, and does not try again for ever."""

from tests.clients.scenarios.registry import scenario
from tests.clients.scenarios.stage import Stage


@scenario()
def unknown_subscription(stage: Stage) -> None:
    with stage.runner() as runner:
        assert stage.subscription in runner.next("refused")
        runner.passes()


@scenario()
def version_mismatch(stage: Stage) -> None:
    stage.publish_numbers(1)
    with stage.runner() as runner:
        assert "999" in runner.next("refused")
        runner.passes()
    stage.counts()
    assert stage.status().counters.delivered == 0
