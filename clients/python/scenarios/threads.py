"""The scenarios of clients/SCENARIOS.md by the blocking client: `python threads.py <scenario>`."""

import logging
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from talk import (
    OTHER_SUBSCRIPTION,
    PART,
    RECORDS,
    REPLY_TOPIC,
    SUBSCRIPTION,
    Failed,
    equal,
    expect,
    main,
    say,
    wait_for_go,
)

import offramp
from offramp import Batch, Consumer, Record, SettleStatus, Worker, connect
from offramp.errors import Drained
from offramp.outcomes import Outcome
from offramp.v1 import record_pb2 as pb

#: seconds for an answer
SOON = 60.0


def take(consumer: Consumer) -> Batch:
    batch = consumer.take(timeout=SOON)
    if batch is None:
        raise Failed("no batch came")
    return batch


def settled(batch: Batch) -> None:
    equal(batch.ack().result(SOON).status, SettleStatus.SETTLED)


def is_first(record: Record) -> None:
    equal((record.attempt, record.possibly_processed), (1, False))


def is_again(record: Record, *, possibly_processed: bool) -> None:
    equal((record.attempt, record.possibly_processed), (2, possibly_processed))


def one(batch: Batch) -> Record:
    equal(len(batch), 1)
    return batch[0]


def handled(*handlers: Callable[[Record], None], **options: Any) -> None:
    """One record, delivered once for each of these; the worker leaves after the last one."""
    left = list(handlers)
    failures = []

    def handle(batch: Batch) -> None:
        if not left:
            failures.append("it was delivered once too often")
            return
        handler = left.pop(0)
        if not left:
            worker.drain()
        try:
            handler(one(batch))
        except Failed as failure:
            failures.append(str(failure))
            worker.drain()

    worker = Worker(SUBSCRIPTION, handle, **options)
    worker.run()
    expect(not failures, "; ".join(failures))
    equal(len(left), 0)


# Outcomes


def plain_ack() -> None:
    seen = set()
    with connect(SUBSCRIPTION) as consumer:
        while len(seen) < RECORDS:
            batch = take(consumer)
            for record in batch:
                is_first(record)
                expect(record.value not in seen, f"{record.value!r} came twice")
                seen.add(record.value)
            batch.ack()
    equal(seen, {b"%d" % number for number in range(RECORDS)})


def nack_then_success() -> None:
    def first(record: Record) -> None:
        is_first(record)
        raise RuntimeError("not yet")

    handled(first, lambda record: is_again(record, possibly_processed=False))


def settle_per_record() -> None:
    with connect(SUBSCRIPTION) as consumer:
        batch = take(consumer)
        equal([record.value for record in batch], [b"%d" % number for number in range(10)])
        batch[4].nack("four")
        batch[5].reject("five")
        batch[6].release()
        settled(batch)
        again: dict[bytes | None, tuple[int, bool]] = {}
        while len(again) < 2:
            batch = take(consumer)
            again.update({record.value: (record.attempt, record.possibly_processed) for record in batch})
            settled(batch)
    equal(again, {b"4": (2, False), b"6": (1, False)})


def partial_settle() -> None:
    with connect(SUBSCRIPTION) as consumer:
        batch = take(consumer)
        equal(len(batch), 10)
        for record in batch[:4]:
            record.ack()
        answer = batch.flush()
        expect(answer is not None and answer.result(SOON).settled, "it was not flushed")
        say("flushed")
        wait_for_go()
        settled(batch)


def reject() -> None:
    def handler(record: Record) -> None:
        raise offramp.Reject("a bad card ✗")

    handled(handler, name="scenario-worker")


def release() -> None:
    def first(record: Record) -> None:
        raise offramp.Release

    handled(first, is_first)


def overloaded() -> None:
    def first(record: Record) -> None:
        raise offramp.Overloaded(after=0.05)

    handled(first, is_first)


def chosen_delay() -> None:
    said_at = 0.0

    def first(record: Record) -> None:
        nonlocal said_at
        said_at = time.monotonic()
        raise offramp.Retry("later", after=0.3)

    def second(record: Record) -> None:
        is_again(record, possibly_processed=False)
        expect(time.monotonic() - said_at >= 0.3, "it came too early")

    handled(first, second)


def poison_isolated() -> None:
    def handle(batch: Batch) -> None:
        if any(record.value == b"poison" for record in batch):
            raise RuntimeError("poison found")
        say("did", len(batch))

    Worker(SUBSCRIPTION, handle).run()


# Leases


def lease_expiry() -> None:
    with connect(SUBSCRIPTION, lease=3.0) as slow:
        held = take(slow)
        equal(held.lease_for, 3.0)
        # Or else it might be the one that gets the record again.
        slow.drain()
        with connect(SUBSCRIPTION) as fast:
            batch = take(fast)
            is_again(one(batch), possibly_processed=True)
            settled(batch)
        result = held.ack().result(SOON)
        equal((result.status, result.stale), (SettleStatus.STALE, (range(1),)))


def lease_extended() -> None:
    with connect(SUBSCRIPTION, lease=5.0) as consumer:
        batch = take(consumer)
        lasts = batch.extend(60).result(SOON)
        expect(50 < lasts <= 60, f"the extended lease lasts {lasts} s")
        say("holding")
        wait_for_go()
        settled(batch)


def _hold_until_killed(about: Callable[[], str]) -> None:
    with connect(SUBSCRIPTION) as consumer:
        if PART == 1:
            batch = take(consumer)
            equal(len(batch), 3)
            say("holding", about())
            while True:
                time.sleep(60)
        batch = take(consumer)
        equal(len(batch), 3)
        for record in batch:
            is_again(record, possibly_processed=True)
        settled(batch)


def killed_while_holding() -> None:
    _hold_until_killed(str)


def child_lives_on() -> None:
    _hold_until_killed(lambda: str(subprocess.Popen(["sleep", "600"]).pid))


def blocked() -> None:
    with connect(SUBSCRIPTION, credit=1) as consumer:
        batch = take(consumer)
        say("holding")
        wait_for_go()
        settled(batch)
        batch = take(consumer)
        is_first(one(batch))
        settled(batch)


def connection_cut() -> None:
    with connect(SUBSCRIPTION, credit=1, resume=30.0) as consumer:
        settled(take(consumer))
        batch = take(consumer)
        say("holding")
        wait_for_go()
        settled(batch)
        batch = take(consumer)
        is_first(one(batch))
        settled(batch)


# Sidecars


def sidecar_comes_later() -> None:
    with connect(SUBSCRIPTION) as consumer:
        say("started")
        settled(take(consumer))


def sidecar_killed() -> None:
    with connect(SUBSCRIPTION) as consumer:
        batch = take(consumer)
        say("holding")
        wait_for_go()
        result = batch.ack().result(SOON)
        equal(result.status, SettleStatus.UNKNOWN)
        again = take(consumer)
        equal(one(again).id, one(batch).id)
        expect(one(again).possibly_processed, "it is not known to be possibly processed")
        settled(again)
        say("again")
        batch = take(consumer)
        equal((one(batch).value, one(batch).attempt), (b"1", 1))
        settled(batch)


def sidecar_drained() -> None:
    with connect(SUBSCRIPTION) as consumer:
        batch = take(consumer)
        say("holding")
        wait_for_go()
        settled(batch)
        say("settled")
        batch = take(consumer)
        equal((batch[0].value, batch[0].attempt), (b"1", 1))
        settled(batch)


def drain() -> None:
    first = True

    def handle(batch: Batch) -> None:
        nonlocal first
        if first:
            first = False
            say("holding")
            wait_for_go()
        else:
            time.sleep(0.001)
        say("did", one(batch).value.decode())

    Worker(SUBSCRIPTION, handle).run()


def drain_while_polling() -> None:
    with connect(SUBSCRIPTION) as consumer:
        held: list[Batch] = []
        try:
            while True:
                if (batch := consumer.take(timeout=0.01)) is not None:
                    held.append(batch)
                    say("holding")
        except Drained:
            say("drained")
        settled(held[0])


# What travels


def _echo(**options: Any) -> None:
    done = 0
    with ExitStack() as stack:
        consumer = stack.enter_context(connect(SUBSCRIPTION, **options))
        publisher = stack.enter_context(offramp.Publisher(subscription=SUBSCRIPTION))
        while done < RECORDS:
            batch = take(consumer)
            for record in batch:
                publisher.publish(REPLY_TOPIC, record.value, key=record.key, headers=record.headers)
            settled(batch)
            done += len(batch)
    equal(done, RECORDS)


def large_records() -> None:
    _echo(max_message_bytes=16 << 20)


def record_too_large() -> None:
    with connect(SUBSCRIPTION, max_message_bytes=1 << 20) as consumer:
        batch = take(consumer)
        equal(one(batch).value, b"small")
        settled(batch)


def publish_and_reply() -> None:
    done = 0

    def handle(batch: Batch) -> None:
        nonlocal done
        for record in batch:
            value = record.value or b""
            places = publisher.publish_many(
                REPLY_TOPIC,
                [
                    offramp.Message(b"reply " + value, record.key, lane=1),
                    offramp.Message(b"done " + value, lane=1),
                ],
            )
            equal([place.lane for place in places], [1, 1])
            expect(places[0].position < places[1].position, f"they are not in order: {places}")
            done += 1
        if done == RECORDS:
            worker.drain()

    worker = Worker(SUBSCRIPTION, handle)
    with offramp.Publisher(subscription=SUBSCRIPTION) as publisher:
        worker.run()


def order_by_key() -> None:
    def handle(batch: Batch) -> None:
        for record in batch:
            say("did", (record.key or b"").decode(), (record.value or b"").decode())

    Worker(SUBSCRIPTION, handle, workers=8).run()


def two_subscriptions() -> None:
    left = {SUBSCRIPTION: RECORDS, OTHER_SUBSCRIPTION: RECORDS}
    with connect(SUBSCRIPTION) as one_of_them, connect(OTHER_SUBSCRIPTION) as other:
        while any(left.values()):
            batches = [
                (name, take(consumer))
                for name, consumer in ((SUBSCRIPTION, one_of_them), (OTHER_SUBSCRIPTION, other))
                if left[name]
            ]
            for name, batch in batches:
                for record in batch:
                    expect((record.value or b"").startswith(f"{name} ".encode()), f"{record.value!r} came to {name}")
                left[name] -= len(batch)
                settled(batch)


# What is refused


def unknown_subscription() -> None:
    try:
        with connect("no-such-subscription") as consumer:
            consumer.take(SOON)
    except offramp.errors.NotFound as error:
        say("refused", error.reason, " ".join(str(error).split()))
    else:
        raise Failed("it was not refused")


def version_mismatch() -> None:
    offramp.options.NEEDS_PROTOCOL_MINOR = 999  # type: ignore[attr-defined]
    try:
        with connect(SUBSCRIPTION) as consumer:
            consumer.take(SOON)
    except offramp.errors.Incompatible as error:
        say("refused", error.reason, " ".join(str(error).split()))
    else:
        raise Failed("it was not refused")


def refused_settlement() -> None:
    with connect(SUBSCRIPTION) as consumer:
        batch = take(consumer)
        refused = batch._settle(Outcome(pb.OUTCOME_UNSPECIFIED)).result(SOON)
        equal((refused.status, refused.reason), (SettleStatus.REFUSED, "UNKNOWN_OUTCOME"))
        again = take(consumer)
        is_again(one(again), possibly_processed=False)
        settled(again)


def one_at_a_time() -> None:
    with connect(SUBSCRIPTION, max_batch_records=1) as consumer:
        seen = set()
        while len(seen) < 10:
            batch = take(consumer)
            seen.add(one(batch).value)
            settled(batch)


def record_identity() -> None:
    with connect(SUBSCRIPTION) as consumer:
        for _ in range(6):
            batch = take(consumer)
            record = one(batch)
            say("id", (record.value or b"").decode(), record.id)
            (batch.nack() if record.attempt == 1 else batch.reject("no")).result(SOON)


def event_headers() -> None:
    with connect(SUBSCRIPTION) as consumer, offramp.Publisher(subscription=SUBSCRIPTION) as publisher:
        batch = take(consumer)
        record = one(batch)
        happened = datetime(2025, 6, 1, 12, 0, 0, 250_000, tzinfo=UTC)
        equal([record.event_time, record.content_type], [happened, "application/json"])
        first, again = [
            publisher.publish_many(
                REPLY_TOPIC,
                [offramp.Message(value, event_time=happened, content_type="application/json", deduplication_id="once")],
            )
            for value in ("reply", "again")
        ]
        equal(again, first)
        batch.ack().result(SOON)


SCENARIOS: dict[str, Callable[[], None]] = {
    **{
        play.__name__: play
        for play in (
            plain_ack, nack_then_success, settle_per_record, partial_settle, reject, release, overloaded, chosen_delay,
            connection_cut,
            poison_isolated, lease_expiry, lease_extended, killed_while_holding, child_lives_on, blocked,
            sidecar_comes_later, sidecar_killed, sidecar_drained, drain, drain_while_polling, large_records,
            record_too_large, publish_and_reply, order_by_key, two_subscriptions, unknown_subscription,
            version_mismatch, refused_settlement,
            one_at_a_time, record_identity, event_headers,
        )
    },
    "null_empty_and_binary": _echo,
    "duplicate_headers": _echo,
}  # fmt: skip

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main(SCENARIOS)
