"""Records as they come, publishing, order, and two subscriptions at a time."""

import os
import signal
from collections import defaultdict
from itertools import product

from offramp.v1.publish_pb2 import Message
from offramp.v1.record_pb2 import Header
from tests.clients.scenarios.registry import scenario
from tests.clients.scenarios.stage import OTHER, Stage, contents

ALL_BYTES = bytes(range(256))
MIB = 1 << 20


def echoed(stage: Stage, messages: list[Message]) -> None:
    """The runner publishes what it gets, so that the broker shows what the client made of it."""
    for message in messages:
        # One by one: together they may be more than one request can carry.
        stage.publish(message)
    with stage.runner(records=len(messages)) as runner:
        runner.passes()
    assert contents(stage.replies(len(messages))) == contents(messages)
    stage.counts(acked=len(messages))


@scenario(replies=True)
def null_empty_and_binary(stage: Stage) -> None:
    kinds = (None, b"", ALL_BYTES, b"\xff\xfe\x00", "grün".encode())
    echoed(stage, [Message(key=key, value=value) for key, value in product(kinds, kinds)])


@scenario(replies=True)
def duplicate_headers(stage: Stage) -> None:
    several = [("trace", b"1"), ("Trace", b"2"), ("trace", b"3"), ("trace", b"1"), ("other", b"")]
    odd = [("", b"no name"), ("größe", "groß".encode()), ("binary", ALL_BYTES), ("null", None), ("empty", b"")]
    echoed(
        stage,
        [
            Message(value=b"%d" % number, headers=[Header(name=name, value=value) for name, value in headers])
            for number, headers in enumerate([[], several, odd, several[::-1], odd[::-1]])
        ],
    )


@scenario(replies=True)
def large_records(stage: Stage) -> None:
    echoed(stage, [Message(key=b"%d" % size, value=os.urandom(size * MIB)) for size in (3, 9)])


@scenario()
def record_too_large(stage: Stage) -> None:
    stage.publish(Message(key=b"large", value=bytes(3 * MIB), lane=0))
    stage.publish(Message(key=b"small", value=b"small", lane=0))
    with stage.runner(records=2) as runner:
        runner.passes()
    stage.counts(acked=1, dead_lettered=1)
    (dead,) = stage.dead_letters()
    assert dead.record.key == b"large"
    stage.all_is_committed()


@scenario(replies=True)
def publish_and_reply(stage: Stage) -> None:
    stage.publish(*(Message(key=b"key %d" % number, value=b"%d" % number) for number in range(3)))
    with stage.runner(records=3) as runner:
        runner.passes()
    replies = sorted(stage.replies(6), key=lambda record: record.position)
    assert {record.lane for record in replies} == {1}
    pairs = [(first, second) for first, second in zip(replies[::2], replies[1::2], strict=True)]
    assert sorted(
        (first.key, first.value, second.HasField("key"), second.value) for first, second in pairs
    ) == [(b"key %d" % number, b"reply %d" % number, False, b"done %d" % number) for number in range(3)]  # fmt: skip
    stage.counts(acked=3)


@scenario(order="key", batch={"records": 7})
def order_by_key(stage: Stage) -> None:
    keys, each = 20, 25
    with stage.runner(records=keys * each) as runner:
        for number in range(each):
            stage.publish(*(Message(key=b"k%d" % key, value=b"%d" % number) for key in range(keys)))
        said = [runner.next("did").split(" ") for _ in range(keys * each)]
        stage.all_is_committed()
        runner.signal(signal.SIGTERM)
        assert runner.passes() == []
    by_key = defaultdict(list)
    for key, value in said:
        by_key[key].append(int(value))
    assert by_key == {f"k{key}": list(range(each)) for key in range(keys)}
    counters = stage.status().counters
    assert (counters.acked, counters.nacked, counters.abandoned) == (keys * each, 0, 0)


@scenario(other=True, batch={"records": 10})
def two_subscriptions(stage: Stage) -> None:
    for which in ("", OTHER):
        name = stage.subscription + which
        stage.publish(*(Message(value=f"{name} {number}".encode()) for number in range(50)), to=which)
    with stage.runner(records=50) as runner:
        runner.passes()
    for which in ("", OTHER):
        stage.counts(which, acked=50)
        stage.nobody_is_left(which)
