"""Sidecars that come later, die and drain under a client, and a client that drains itself."""

import signal

from tests.clients.scenarios.registry import scenario
from tests.clients.scenarios.stage import Stage


@scenario(alone=True)
def sidecar_comes_later(stage: Stage) -> None:
    with stage.runner(records=1) as runner:
        runner.next("started")
        stage.sidecar.start()
        stage.publish_numbers(1)
        runner.passes()
    stage.counts(acked=1)


@scenario(alone=True, batch={"records": 1})
def sidecar_killed(stage: Stage) -> None:
    stage.sidecar.start()
    stage.publish_numbers(1, lane=0)
    with stage.runner(records=2) as runner:
        runner.next("holding")
        stage.sidecar.restart()
        runner.go()
        runner.next("again")
        stage.publish_numbers(2, start=1, lane=0)
        runner.passes()
    # Whether the lost settlement is said again is the client's to decide.
    counters = stage.status().counters
    assert (counters.acked, counters.abandoned, counters.expired) == (2, 0, 0)
    stage.all_is_committed()


@scenario(alone=True, batch={"records": 1}, sidecar={"drain": {"deadline": "30s"}})
def sidecar_drained(stage: Stage) -> None:
    stage.sidecar.start()
    stage.publish_numbers(1, lane=0)
    with stage.runner(records=2) as runner:
        runner.next("holding")
        stage.sidecar.signal(signal.SIGTERM)
        stage.sidecar.event("stopping")
        runner.go()
        runner.next("settled")
        assert stage.sidecar.wait() == 0
        stage.sidecar.start()
        stage.publish_numbers(2, start=1, lane=0)
        runner.passes()
    stage.counts(acked=1)
    stage.all_is_committed()
    assert stage.committed == 2


@scenario(batch={"records": 1})
def drain(stage: Stage) -> None:
    stage.publish_numbers(5_000)
    with stage.runner(records=5_000) as runner:
        runner.next("holding")
        runner.signal(signal.SIGTERM)
        runner.go()
        did = [value for _, value in runner.passes()]
    assert did
    assert len(did) == len(set(did))
    stage.nobody_is_left()
    counters = stage.status().counters
    assert counters.acked == len(did) < 5_000
    assert (counters.abandoned, counters.nacked, counters.expired) == (0, 0, 0)
