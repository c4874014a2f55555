"""What a client says of records, and what the sidecar makes of it."""

import signal

from offramp.v1.publish_pb2 import Message
from tests.clients.scenarios.environment import NEVER, ScenarioEnvironment
from tests.clients.scenarios.registry import scenario


@scenario(batch={"records": 10})
def plain_ack(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(100)
    with environment.runner(records=100) as runner:
        runner.passes()
    environment.counts(acked=100)
    environment.all_is_committed()
    environment.nobody_is_left()


@scenario()
def nack_then_success(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(1)
    with environment.runner(records=1) as runner:
        runner.passes()
    environment.counts(acked=1, nacked=1)


@scenario(batch={"records": 10})
def settle_per_record(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(10, lane=0)
    with environment.runner(records=10) as runner:
        runner.passes()
    environment.counts(acked=9, nacked=1, released=1, rejected=1, dead_lettered=1)
    (dead,) = environment.dead_letters()
    assert (dead.record.value, dead.reason) == (b"5", "REJECTED: five")
    environment.all_is_committed()


@scenario(batch={"records": 10})
def partial_settle(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(10, lane=0)
    with environment.runner(records=10) as runner:
        runner.next("flushed")
        environment.counts(acked=4)
        assert environment.status().in_flight_records == 6
        runner.go()
        runner.passes()
    environment.counts(acked=10)
    environment.all_is_committed()


@scenario()
def reject(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(1)
    with environment.runner(records=1) as runner:
        runner.passes()
    environment.counts(rejected=1, dead_lettered=1)
    (dead,) = environment.dead_letters()
    assert (dead.reason, dead.attempts, dead.worker) == ("REJECTED: a bad card ✗", 1, "scenario-worker")
    environment.all_is_committed()


@scenario(**NEVER)
def release(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(1)
    with environment.runner(records=1) as runner:
        runner.passes()
    environment.counts(released=1, acked=1)


@scenario(**NEVER)
def overloaded(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(1)
    with environment.runner(records=1) as runner:
        runner.passes()
    environment.counts(overloaded=1, acked=1)


@scenario(**NEVER)
def chosen_delay(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(1)
    with environment.runner(records=1) as runner:
        runner.passes()
    environment.counts(nacked=1, acked=1)


@scenario(batch={"records": 16}, retry={"first": "1ms", "jitter": 0, "attempts": 2})
def poison_isolated(environment: ScenarioEnvironment) -> None:
    with environment.runner(records=32) as runner:
        environment.publish_numbers(16, lane=0)
        done = 0
        while done < 16:
            done += int(runner.next("did"))
        # A success that the sidecar knows of shows that the handler works, so that a failure is a record's fault.
        environment.counts(acked=16)
        values = [b"%d" % number for number in range(16, 31)]
        values.insert(11, b"poison")
        environment.publish(*(Message(value=value, lane=0) for value in values))
        while done < 31:
            done += int(runner.next("did"))
        environment.all_is_committed()
        runner.signal(signal.SIGTERM)
        runner.passes()
    counters = environment.status().counters
    assert (counters.acked, counters.dead_lettered) == (31, 1)
    (dead,) = environment.dead_letters()
    assert dead.record.value == b"poison"
    assert "poison found" in dead.reason
    assert dead.attempts == 2
