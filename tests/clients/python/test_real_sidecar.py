"""The client and a real `offramp run` process."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import offramp
from tests.e2e.harness import Sidecar, eventually

QUICK_RETRY = {"topics": ["orders"], "retry": {"first": "1ms", "jitter": 0}, "batch": {"records": 10}}


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    with Sidecar(tmp_path, subscriptions={"orders": QUICK_RETRY}) as sidecar:
        yield sidecar


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_what_is_published_is_handled_and_committed(sidecar: Sidecar) -> None:
    values = []

    def handle(batch: offramp.Batch) -> None:
        values.extend(record.value for record in batch)

    with offramp.Publisher(subscription="orders", address=sidecar.target) as publisher:
        publisher.publish("orders", b"first", key="k", headers={"h": "1"})
        publisher.publish_many("orders", map(offramp.Message, numbered(500)))
    worker = offramp.Worker("orders", handle, workers=4, address=sidecar.target)
    with ThreadPoolExecutor() as pool:
        run = pool.submit(worker.run)
        eventually(lambda: sum(lane.committed for lane in sidecar.status().lanes) == 501)
        worker.drain()
        run.result(timeout=30)
    assert sorted(values) == sorted([b"first", *numbered(500)])
    assert not sidecar.status().sessions


def test_each_outcome_has_its_effect(sidecar: Sidecar) -> None:
    seen = Counter[bytes]()

    async def handle(batch: offramp.Batch) -> None:
        for record in batch:
            value = record.value or b""
            seen[value] += 1
            if value == b"1":
                record.reject("a bad one")
            elif value == b"2" and record.attempt < 3:
                record.nack("not yet")
            elif value == b"3" and seen[value] == 1:
                record.release()
        if seen[b"2"] == 3 and seen[b"3"] == 2:
            worker.drain()

    sidecar.publish("orders", numbered(10), lane=0)
    worker = offramp.aio.Worker("orders", handle, workers=2, address=sidecar.target)
    asyncio.run(worker.run())
    assert {value: count for value, count in seen.items() if count > 1} == {b"2": 3, b"3": 2}
    # A dead letter is written after the worker has had its answer.
    counters = eventually(lambda: (seen := sidecar.status().counters).dead_lettered and seen)
    assert (counters.rejected, counters.nacked, counters.released) == (1, 2, 1)
    assert (counters.acked, counters.dead_lettered) == (9, 1)


def test_flushed_records_count_while_the_rest_stays_in_hand(sidecar: Sidecar) -> None:
    sidecar.publish("orders", numbered(10), lane=0)
    with offramp.connect("orders", address=sidecar.target, lease=60) as consumer:
        batch = next(consumer)
        assert (len(batch), batch.lease_for) == (10, 60)
        assert batch.extend(120).result(timeout=30) > 60
        for record in batch[:4]:
            record.ack()
        flushed = batch.flush()
        assert flushed is not None
        assert flushed.result(timeout=30).settled
        eventually(lambda: sum(lane.committed for lane in sidecar.status().lanes) == 4)
        batch[4].nack("no")
        assert batch.ack().result(timeout=30).settled
        (again,) = next(consumer)
        assert (again.value, again.attempt, again.possibly_processed) == (b"4", 2, False)
        again.batch.ack()


def test_a_batch_in_hand_is_released_by_closing_and_possibly_processed_by_an_interrupt(sidecar: Sidecar) -> None:
    def interrupt() -> None:
        with offramp.connect("orders", address=sidecar.target) as consumer:
            (record,) = next(consumer)
            assert (record.attempt, record.possibly_processed) == (1, False)
            raise KeyboardInterrupt

    sidecar.publish("orders", [b"1"])
    with offramp.connect("orders", address=sidecar.target) as consumer:
        next(consumer)
    with pytest.raises(KeyboardInterrupt):
        interrupt()
    with offramp.connect("orders", address=sidecar.target) as consumer:
        (record,) = next(consumer)
        assert (record.attempt, record.possibly_processed) == (2, True)
        assert record.batch.ack().result(timeout=30).settled


def test_an_unknown_subscription_is_named_with_those_there_are(sidecar: Sidecar) -> None:
    with pytest.raises(offramp.errors.NotFound, match="orders"):
        offramp.Worker("ordrs", print, address=sidecar.target).run()
    with (
        offramp.Publisher(broker="lokal", address=sidecar.target) as publisher,
        pytest.raises(offramp.errors.NotFound, match="local"),
    ):
        publisher.publish("orders", b"1")


def test_workers_outlive_sidecars_that_are_killed_under_load_and_nothing_is_lost(sidecar: Sidecar) -> None:
    seen = Counter[bytes]()
    changed = threading.Condition()

    def handle(batch: offramp.Batch) -> None:
        with changed:
            seen.update(record.value or b"" for record in batch)
            changed.notify_all()

    sidecar.publish("orders", numbered(3_000))
    worker = offramp.Worker("orders", handle, workers=4, address=sidecar.target)
    with ThreadPoolExecutor() as pool:
        run = pool.submit(worker.run)
        for share in (500, 1_500):
            with changed:
                assert changed.wait_for(lambda share=share: len(seen) >= share, timeout=60)
            sidecar.restart()
        eventually(lambda: sum(lane.committed for lane in sidecar.status().lanes) == 3_000)
        worker.drain()
        run.result(timeout=30)
    assert seen.keys() == set(numbered(3_000))


def test_a_settlement_larger_than_the_sidecars_requests_is_settled(tmp_path: Path) -> None:
    orders = {"topics": ["orders"], "batch": {"records": 500}, "outage": {"reject_share": 1}}
    with Sidecar(tmp_path, subscriptions={"orders": orders}, listen={"max_request_bytes": 65_536}) as sidecar:
        sidecar.publish("orders", numbered(500), lane=0)
        with offramp.connect("orders", address=sidecar.target) as consumer:
            batch = next(consumer)
            for record in batch:
                record.reject(f"{record.index} " * 150)
            assert batch.ack().result(timeout=30).settled
            assert consumer.connected
        assert sidecar.status().counters.rejected == len(batch) == 500
