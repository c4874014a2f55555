"""The scenarios of clients/SCENARIOS.md by the asyncio client: `python tasks.py <scenario>`."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
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
from offramp import Batch, Record, SettleStatus
from offramp.aio import Consumer, Worker, connect
from offramp.errors import Drained
from offramp.outcomes import Outcome
from offramp.v1 import record_pb2 as pb

#: seconds for an answer
SOON = 60.0


async def take(consumer: Consumer) -> Batch:
    batch = await consumer.take(timeout=SOON)
    if batch is None:
        raise Failed("no batch came")
    return batch


async def settled(batch: Batch) -> None:
    equal((await batch.ack()).status, SettleStatus.SETTLED)


async def told_to_go() -> None:
    await asyncio.to_thread(wait_for_go)


def is_first(record: Record) -> None:
    equal((record.attempt, record.possibly_processed), (1, False))


def is_again(record: Record, *, possibly_processed: bool) -> None:
    equal((record.attempt, record.possibly_processed), (2, possibly_processed))


def one(batch: Batch) -> Record:
    equal(len(batch), 1)
    return batch[0]


async def handled(*handlers: Callable[[Record], None], **options: Any) -> None:
    """One record, delivered once for each of these; the worker leaves after the last one."""
    left = list(handlers)
    failures = []

    async def handle(batch: Batch) -> None:
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
    await worker.run()
    expect(not failures, "; ".join(failures))
    equal(len(left), 0)


# Outcomes


async def plain_ack() -> None:
    seen = set()
    async with connect(SUBSCRIPTION) as consumer:
        async for batch in consumer:
            for record in batch:
                is_first(record)
                expect(record.value not in seen, f"{record.value!r} came twice")
                seen.add(record.value)
            batch.ack()
            if len(seen) >= RECORDS:
                break
    equal(seen, {b"%d" % number for number in range(RECORDS)})


async def nack_then_success() -> None:
    def first(record: Record) -> None:
        is_first(record)
        raise RuntimeError("not yet")

    await handled(first, partial(is_again, possibly_processed=False))


async def settle_per_record() -> None:
    async with connect(SUBSCRIPTION) as consumer:
        batch = await take(consumer)
        equal([record.value for record in batch], [b"%d" % number for number in range(10)])
        batch[4].nack("four")
        batch[5].reject("five")
        batch[6].release()
        await settled(batch)
        again: dict[bytes | None, tuple[int, bool]] = {}
        while len(again) < 2:
            batch = await take(consumer)
            again.update({record.value: (record.attempt, record.possibly_processed) for record in batch})
            await settled(batch)
    equal(again, {b"4": (2, False), b"6": (1, False)})


async def partial_settle() -> None:
    async with connect(SUBSCRIPTION) as consumer:
        batch = await take(consumer)
        equal(len(batch), 10)
        for record in batch[:4]:
            record.ack()
        answer = batch.flush()
        expect(answer is not None and (await answer).settled, "it was not flushed")
        say("flushed")
        await told_to_go()
        await settled(batch)


async def reject() -> None:
    def handler(record: Record) -> None:
        raise offramp.Reject("a bad card ✗")

    await handled(handler, name="scenario-worker")


async def release() -> None:
    def first(record: Record) -> None:
        raise offramp.Release

    await handled(first, is_first)


async def overloaded() -> None:
    def first(record: Record) -> None:
        raise offramp.Overloaded(after=0.05)

    await handled(first, is_first)


async def chosen_delay() -> None:
    said_at = 0.0

    def first(record: Record) -> None:
        nonlocal said_at
        said_at = time.monotonic()
        raise offramp.Retry("later", after=0.3)

    def second(record: Record) -> None:
        is_again(record, possibly_processed=False)
        expect(time.monotonic() - said_at >= 0.3, "it came too early")

    await handled(first, second)


async def poison_isolated() -> None:
    async def handle(batch: Batch) -> None:
        if any(record.value == b"poison" for record in batch):
            raise RuntimeError("poison found")
        say("did", len(batch))

    await Worker(SUBSCRIPTION, handle).run()


# Leases


async def lease_expiry() -> None:
    async with connect(SUBSCRIPTION, lease=3.0) as slow:
        held = await take(slow)
        equal(held.lease_for, 3.0)
        # Or else it might be the one that gets the record again.
        slow.drain()
        async with connect(SUBSCRIPTION) as fast:
            batch = await take(fast)
            is_again(one(batch), possibly_processed=True)
            await settled(batch)
        result = await held.ack()
        equal((result.status, result.stale), (SettleStatus.STALE, (range(1),)))


async def lease_extended() -> None:
    async with connect(SUBSCRIPTION, lease=5.0) as consumer:
        batch = await take(consumer)
        lasts = await batch.extend(60)
        expect(50 < lasts <= 60, f"the extended lease lasts {lasts} s")
        say("holding")
        await told_to_go()
        await settled(batch)


async def _hold_until_killed(*, child: bool) -> None:
    async with connect(SUBSCRIPTION) as consumer:
        batch = await take(consumer)
        equal(len(batch), 3)
        if PART == 1:
            about = (await asyncio.create_subprocess_exec("sleep", "600")).pid if child else ""
            say("holding", about)
            await asyncio.Event().wait()
        for record in batch:
            is_again(record, possibly_processed=True)
        await settled(batch)


async def blocked() -> None:
    async with connect(SUBSCRIPTION, credit=1) as consumer:
        batch = await take(consumer)
        say("holding")
        # It blocks its loop, as a careless handler does.
        wait_for_go()
        await settled(batch)
        batch = await take(consumer)
        is_first(one(batch))
        await settled(batch)


async def connection_cut() -> None:
    async with connect(SUBSCRIPTION, credit=1, resume=30.0) as consumer:
        await settled(await take(consumer))
        batch = await take(consumer)
        say("holding")
        await asyncio.to_thread(wait_for_go)
        await settled(batch)
        batch = await take(consumer)
        is_first(one(batch))
        await settled(batch)


# Sidecars


async def sidecar_comes_later() -> None:
    async with connect(SUBSCRIPTION) as consumer:
        say("started")
        await settled(await take(consumer))


async def sidecar_killed() -> None:
    async with connect(SUBSCRIPTION) as consumer:
        batch = await take(consumer)
        say("holding")
        await told_to_go()
        equal((await batch.ack()).status, SettleStatus.UNKNOWN)
        again = await take(consumer)
        equal(one(again).id, one(batch).id)
        expect(one(again).possibly_processed, "it is not known to be possibly processed")
        await settled(again)
        say("again")
        batch = await take(consumer)
        equal((one(batch).value, one(batch).attempt), (b"1", 1))
        await settled(batch)


async def sidecar_drained() -> None:
    async with connect(SUBSCRIPTION) as consumer:
        batch = await take(consumer)
        say("holding")
        await told_to_go()
        await settled(batch)
        say("settled")
        batch = await take(consumer)
        equal((one(batch).value, one(batch).attempt), (b"1", 1))
        await settled(batch)


async def drain() -> None:
    first = True

    async def handle(batch: Batch) -> None:
        nonlocal first
        if first:
            first = False
            say("holding")
            await told_to_go()
        else:
            await asyncio.sleep(0.001)
        say("did", (one(batch).value or b"").decode())

    await Worker(SUBSCRIPTION, handle).run()


async def drain_while_polling() -> None:
    async with connect(SUBSCRIPTION) as consumer:
        held: list[Batch] = []
        try:
            while True:
                if (batch := await consumer.take(timeout=0.01)) is not None:
                    held.append(batch)
                    say("holding")
        except Drained:
            say("drained")
        await settled(held[0])


# What travels


async def _echo(**options: Any) -> None:
    done = 0
    async with AsyncExitStack() as stack:
        consumer = await stack.enter_async_context(connect(SUBSCRIPTION, **options))
        publisher = await stack.enter_async_context(offramp.aio.Publisher(subscription=SUBSCRIPTION))
        while done < RECORDS:
            batch = await take(consumer)
            for record in batch:
                await publisher.publish(REPLY_TOPIC, record.value, key=record.key, headers=record.headers)
            await settled(batch)
            done += len(batch)
    equal(done, RECORDS)


async def record_too_large() -> None:
    async with connect(SUBSCRIPTION, max_message_bytes=1 << 20) as consumer:
        batch = await take(consumer)
        equal(one(batch).value, b"small")
        await settled(batch)


async def publish_and_reply() -> None:
    done = 0

    async def handle(batch: Batch) -> None:
        nonlocal done
        for record in batch:
            value = record.value or b""
            places = await publisher.publish_many(
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
    async with offramp.aio.Publisher(subscription=SUBSCRIPTION) as publisher:
        await worker.run()


async def order_by_key() -> None:
    async def handle(batch: Batch) -> None:
        for record in batch:
            say("did", (record.key or b"").decode(), (record.value or b"").decode())
            await asyncio.sleep(0)

    await Worker(SUBSCRIPTION, handle, workers=8).run()


async def two_subscriptions() -> None:
    left = {SUBSCRIPTION: RECORDS, OTHER_SUBSCRIPTION: RECORDS}
    async with connect(SUBSCRIPTION) as one_of_them, connect(OTHER_SUBSCRIPTION) as other:
        while any(left.values()):
            batches = [
                (name, await take(consumer))
                for name, consumer in ((SUBSCRIPTION, one_of_them), (OTHER_SUBSCRIPTION, other))
                if left[name]
            ]
            for name, batch in batches:
                for record in batch:
                    expect((record.value or b"").startswith(f"{name} ".encode()), f"{record.value!r} came to {name}")
                left[name] -= len(batch)
                await settled(batch)


# What is refused


async def unknown_subscription() -> None:
    try:
        async with connect("no-such-subscription") as consumer:
            await consumer.take(SOON)
    except offramp.errors.NotFound as error:
        say("refused", error.reason, " ".join(str(error).split()))
    else:
        raise Failed("it was not refused")


async def version_mismatch() -> None:
    offramp.options.NEEDS_PROTOCOL_MINOR = 999  # type: ignore[attr-defined]
    try:
        async with connect(SUBSCRIPTION) as consumer:
            await consumer.take(SOON)
    except offramp.errors.Incompatible as error:
        say("refused", error.reason, " ".join(str(error).split()))
    else:
        raise Failed("it was not refused")


async def refused_settlement() -> None:
    async with connect(SUBSCRIPTION) as consumer:
        batch = await take(consumer)
        refused = await batch._settle(Outcome(pb.OUTCOME_UNSPECIFIED))
        equal((refused.status, refused.reason), (SettleStatus.REFUSED, "UNKNOWN_OUTCOME"))
        again = await take(consumer)
        is_again(one(again), possibly_processed=False)
        await settled(again)


async def one_at_a_time() -> None:
    async with connect(SUBSCRIPTION, max_batch_records=1) as consumer:
        seen = set()
        while len(seen) < 10:
            batch = await take(consumer)
            seen.add(one(batch).value)
            await settled(batch)


async def record_identity() -> None:
    async with connect(SUBSCRIPTION) as consumer:
        for _ in range(6):
            batch = await take(consumer)
            record = one(batch)
            say("id", (record.value or b"").decode(), record.id)
            await (batch.nack() if record.attempt == 1 else batch.reject("no"))


async def event_headers() -> None:
    async with connect(SUBSCRIPTION) as consumer, offramp.aio.Publisher(subscription=SUBSCRIPTION) as publisher:
        batch = await take(consumer)
        record = one(batch)
        happened = datetime(2025, 6, 1, 12, 0, 0, 250_000, tzinfo=UTC)
        equal([record.event_time, record.content_type], [happened, "application/json"])
        first, again = [
            await publisher.publish_many(
                REPLY_TOPIC,
                [offramp.Message(value, event_time=happened, content_type="application/json", deduplication_id="once")],
            )
            for value in ("reply", "again")
        ]
        equal(again, first)
        await batch.ack()


PLAYS = {
    **{
        play.__name__: play
        for play in (
            plain_ack, nack_then_success, settle_per_record, partial_settle, reject, release, overloaded, chosen_delay,
            connection_cut,
            poison_isolated, lease_expiry, lease_extended, blocked, sidecar_comes_later, sidecar_killed,
            sidecar_drained, drain, drain_while_polling, record_too_large, publish_and_reply, order_by_key,
            two_subscriptions, unknown_subscription, version_mismatch, refused_settlement,
            one_at_a_time, record_identity, event_headers,
        )
    },
    "killed_while_holding": partial(_hold_until_killed, child=False),
    "child_lives_on": partial(_hold_until_killed, child=True),
    "null_empty_and_binary": _echo,
    "duplicate_headers": _echo,
    "large_records": partial(_echo, max_message_bytes=16 << 20),
}  # fmt: skip

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main({name: partial(lambda chosen: asyncio.run(chosen()), play) for name, play in PLAYS.items()})
