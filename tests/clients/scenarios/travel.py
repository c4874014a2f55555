"""Records as they come, publishing, order, and two subscriptions at a time."""

import os
import signal
from collections import defaultdict
from datetime import UTC, datetime
from itertools import product

from offramp.v1.publish_pb2 import Message
from offramp.v1.record_pb2 import Header
from tests.clients.scenarios.environment import OTHER, ScenarioEnvironment, contents
from tests.clients.scenarios.registry import scenario

ALL_BYTES = bytes(range(256))
MIB = 1 << 20


def echoed(environment: ScenarioEnvironment, messages: list[Message]) -> None:
    """The runner publishes what it gets, so that the broker shows what the client made of it."""
    for message in messages:
        # One by one: together they may be more than one request can carry.
        environment.publish(message)
    with environment.runner(records=len(messages)) as runner:
        runner.passes()
    assert contents(environment.replies(len(messages))) == contents(messages)
    environment.counts(acked=len(messages))


@scenario(replies=True)
def null_empty_and_binary(environment: ScenarioEnvironment) -> None:
    kinds = (None, b"", ALL_BYTES, b"\xff\xfe\x00", "grün".encode())
    echoed(environment, [Message(key=key, value=value) for key, value in product(kinds, kinds)])


@scenario(replies=True)
def duplicate_headers(environment: ScenarioEnvironment) -> None:
    several = [("trace", b"1"), ("Trace", b"2"), ("trace", b"3"), ("trace", b"1"), ("other", b"")]
    odd = [("", b"no name"), ("größe", "groß".encode()), ("binary", ALL_BYTES), ("null", None), ("empty", b"")]
    echoed(
        environment,
        [
            Message(value=b"%d" % number, headers=[Header(name=name, value=value) for name, value in headers])
            for number, headers in enumerate([[], several, odd, several[::-1], odd[::-1]])
        ],
    )


@scenario(replies=True)
def large_records(environment: ScenarioEnvironment) -> None:
    echoed(environment, [Message(key=b"%d" % size, value=os.urandom(size * MIB)) for size in (3, 9)])


@scenario()
def record_too_large(environment: ScenarioEnvironment) -> None:
    environment.publish(Message(key=b"large", value=bytes(3 * MIB), lane=0))
    environment.publish(Message(key=b"small", value=b"small", lane=0))
    with environment.runner(records=2) as runner:
        runner.passes()
    environment.counts(acked=1, dead_lettered=1)
    (dead,) = environment.dead_letters()
    assert dead.record.key == b"large"
    environment.all_is_committed()


@scenario(replies=True)
def publish_and_reply(environment: ScenarioEnvironment) -> None:
    environment.publish(*(Message(key=b"key %d" % number, value=b"%d" % number) for number in range(3)))
    with environment.runner(records=3) as runner:
        runner.passes()
    replies = sorted(environment.replies(6), key=lambda record: record.position)
    assert {record.lane for record in replies} == {1}
    pairs = [(first, second) for first, second in zip(replies[::2], replies[1::2], strict=True)]
    assert sorted(
        (first.key, first.value, second.HasField("key"), second.value) for first, second in pairs
    ) == [(b"key %d" % number, b"reply %d" % number, False, b"done %d" % number) for number in range(3)]  # fmt: skip
    environment.counts(acked=3)


@scenario(order="key", batch={"records": 7})
def order_by_key(environment: ScenarioEnvironment) -> None:
    keys, each = 20, 25
    with environment.runner(records=keys * each) as runner:
        for number in range(each):
            environment.publish(*(Message(key=b"k%d" % key, value=b"%d" % number) for key in range(keys)))
        said = [runner.next("did").split(" ") for _ in range(keys * each)]
        environment.all_is_committed()
        runner.signal(signal.SIGTERM)
        assert runner.passes() == []
    by_key = defaultdict(list)
    for key, value in said:
        by_key[key].append(int(value))
    assert by_key == {f"k{key}": list(range(each)) for key in range(keys)}
    counters = environment.status().counters
    assert (counters.acked, counters.nacked, counters.abandoned) == (keys * each, 0, 0)


@scenario(other=True, batch={"records": 10})
def two_subscriptions(environment: ScenarioEnvironment) -> None:
    for which in ("", OTHER):
        name = environment.subscription + which
        environment.publish(*(Message(value=f"{name} {number}".encode()) for number in range(50)), to=which)
    with environment.runner(records=50) as runner:
        runner.passes()
    for which in ("", OTHER):
        environment.counts(which, acked=50)
        environment.nobody_is_left(which)


@scenario(replies=True)
def event_headers(environment: ScenarioEnvironment) -> None:
    happened = Header(name="ce_time", value=b"2025-06-01T14:00:00.25+02:00")
    encoded = Header(name="content-type", value=b"application/json")
    environment.publish(Message(value=b"{}", headers=[happened, encoded]))
    with environment.runner(records=1) as runner:
        runner.passes()
    (reply,) = environment.replies(1)
    headers = {header.name: (header.value or b"").decode() for header in reply.headers}
    assert (reply.value, headers["content-type"], headers["ce_time"][-1]) == (b"reply", "application/json", "Z")
    assert datetime.fromisoformat(headers["ce_time"]) == datetime(2025, 6, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    environment.counts(acked=1)


@scenario(batch={"records": 10})
def one_at_a_time(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(10, lane=0)
    with environment.runner(records=10) as runner:
        runner.passes()
    environment.counts(acked=10)
    assert environment.status().counters.batches == 10


@scenario(batch={"records": 1})
def record_identity(environment: ScenarioEnvironment) -> None:
    environment.publish_numbers(3, lane=0)
    with environment.runner(records=3) as runner:
        said = [tuple(words[1:]) for words in runner.passes()]
    assert len(said) == 6
    ids = dict(said)
    assert len(set(said)) == len(ids) == len(set(ids.values())) == 3
    # A dead letter is written after the worker has had its answer.
    environment.counts(nacked=3, rejected=3, dead_lettered=3)
    assert {(one.record.value or b"").decode(): one.id for one in environment.dead_letters()} == ids
