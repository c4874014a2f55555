"""Sidecars that come later, die and drain under a client, and a client that drains itself."""

import signal

from tests.clients.scenarios.environment import ScenarioEnvironment
from tests.clients.scenarios.registry import scenario


@scenario(alone=True)
def sidecar_comes_later(environment: ScenarioEnvironment) -> None:
    with environment.runner(records=1) as runner:
        runner.next("started")
        environment.sidecar.start()
        environment.publish_numbers(1)
        runner.passes()
    environment.counts(acked=1)


@scenario(alone=True, batch={"records": 1})
def sidecar_killed(environment: ScenarioEnvironment) -> None:
    environment.sidecar.start()
    environment.publish_numbers(1, lane=0)
    with environment.runner(records=2) as runner:
        runner.next("holding")
        environment.sidecar.restart()
        runner.go()
        runner.next("again")
        environment.publish_numbers(2, start=1, lane=0)
        runner.passes()
    # Whether the lost settlement is said again is the client's to decide.
    counters = environment.status().counters
    assert (counters.acked, counters.abandoned, counters.expired) == (2, 0, 0)
    environment.all_is_committed()


@scenario(alone=True, batch={"records": 1}, sidecar={"drain": {"deadline": "30s"}})
def sidecar_drained(environment: ScenarioEnvironment) -> None:
    environment.sidecar.start()
    environment.publish_numbers(1, lane=0)
    with environment.runner(records=2) as runner:
        runner.next("holding")
        environment.sidecar.signal(signal.SIGTERM)
        environment.sidecar.event("stopping")
        runner.go()
        runner.next("settled")
        assert environment.sidecar.wait() == 0
        environment.sidecar.start()
        environment.publish_numbers(2, start=1, lane=0)
        runner.passes()
    environment.counts(acked=1)
    environment.all_is_committed()
    assert environment.committed == 2


@scenario(batch={"records": 1})
def drain(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(5_000)
    with environment.runner(records=5_000) as runner:
        runner.next("holding")
        runner.signal(signal.SIGTERM)
        runner.go()
        did = [value for _, value in runner.passes()]
    assert did
    assert len(did) == len(set(did))
    environment.nobody_is_left()
    counters = environment.status().counters
    assert counters.acked == len(did) < 5_000
    assert (counters.abandoned, counters.nacked, counters.expired) == (0, 0, 0)


@scenario()
def drain_while_polling(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(1)
    with environment.runner(records=1) as runner:
        runner.next("holding")
        runner.signal(signal.SIGTERM)
        runner.next("drained")
        runner.passes()
    environment.nobody_is_left()
    environment.counts(acked=1)
