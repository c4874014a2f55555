"""Batches that are held: for too long, by processes that die, by processes that are stopped."""

import os
import signal
import time
from pathlib import Path

from offramp.v1 import admin_pb2
from tests.chaos.proxy_process import ProxyProcess
from tests.clients.scenarios.environment import NEVER, ScenarioEnvironment, address_of
from tests.clients.scenarios.registry import scenario
from tests.e2e.harness import eventually

#: seconds; gRPC waits for the answer to a ping for one minute at the most, and asks every two hours, or when it
#: measures a line
STOPPED = 210.0 if os.environ.get("OFFRAMP_TEST_LONG") else 2.0
#: seconds of the lease that a client asks for and then extends
LEASE = 5.0


@scenario()
def lease_expiry(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(1)
    with environment.runner(records=1) as runner:
        runner.passes()
    environment.counts(expired=1, acked=1, stale_settlements=1)
    environment.all_is_committed()


@scenario()
def lease_extended(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(1)
    with environment.runner(records=1) as runner:
        runner.next("holding")
        # The time itself is the point: the first lease must be over.
        time.sleep(LEASE + 0.2)
        runner.go()
        runner.passes()
    environment.counts(acked=1)


@scenario(batch={"records": 1})
def connection_cut(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(3, lane=0)
    proxy = ProxyProcess(address_of(environment.sidecar, "tcp"))
    try:
        with environment.runner(records=3, address=proxy.address) as runner:
            runner.next("holding")
            proxy.cut()
            # One that blocks while it works connects again when it goes on.
            eventually(lambda: _lost_a_connection(environment.status()), "the sidecar notices")
            runner.go()
            runner.passes()
    finally:
        proxy.close()
    environment.counts(acked=3)
    counters = environment.status().counters
    assert (counters.batches, counters.redelivered, counters.resumed_sessions) == (3, 0, 1)
    environment.nobody_is_left()


@scenario(batch={"records": 3}, **NEVER)
def killed_while_holding(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(3, lane=0)
    with environment.runner(part=1, records=3) as runner:
        runner.next("holding")
        assert environment.status().in_flight_records == 3
        runner.kill()
    with environment.runner(part=2, records=3) as runner:
        runner.passes()
    environment.counts(abandoned=3, acked=3)


@scenario(batch={"records": 3}, **NEVER)
def child_lives_on(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(3, lane=0)
    with environment.runner(part=1, records=3) as first:
        child = int(first.next("holding"))
        first.kill()
        with environment.runner(part=2, records=3) as second:
            second.passes()
        assert "sleep" in Path(f"/proc/{child}/cmdline").read_text()
    environment.counts(abandoned=3, acked=3)


@scenario(batch={"records": 1})
def blocked(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(1, lane=0)
    with environment.runner(records=2) as runner:
        runner.next("holding")
        (session,) = environment.status().sessions
        runner.signal(signal.SIGSTOP)
        environment.publish_numbers(2, start=1, lane=0)
        time.sleep(STOPPED)
        assert [one.session for one in environment.status().sessions] == [session.session]
        runner.signal(signal.SIGCONT)
        runner.go()
        runner.passes()
    environment.counts(acked=2)


def _lost_a_connection(status: admin_pb2.SubscriptionStatus) -> bool:
    return status.counters.resumed_sessions > 0 or any(session.away_ms for session in status.sessions)
