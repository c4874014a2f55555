"""Connections over TCP that are cut, and sessions that are resumed."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import offramp
from offramp import SettleStatus, aio
from offramp.options import Options
from tests.chaos.proxy_process import ProxyProcess
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually
from tests.servers.process import free_ports

ONE_BY_ONE = {"topics": ["orders"], "retry": {"first": "1ms", "jitter": 0}, "batch": {"records": 1}}
#: seconds that no test waits for
LONG = 60.0


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    listen = {"tcp": f"127.0.0.1:{free_ports(1)[0]}"}
    with Sidecar(tmp_path, subscriptions={"orders": ONE_BY_ONE}, listen=listen) as sidecar:
        yield sidecar


@pytest.fixture
def proxy(sidecar: Sidecar) -> Iterator[ProxyProcess]:
    proxy = ProxyProcess(sidecar.settings["listen"]["tcp"])
    try:
        yield proxy
    finally:
        proxy.close()


def publish(sidecar: Sidecar, *values: bytes) -> None:
    with offramp.Publisher(subscription="orders", address=sidecar.target) as publisher:
        publisher.publish_many("orders", map(offramp.Message, values))


async def ready(sidecar: Sidecar, consumer: aio.Consumer) -> None:
    """Returns once the sidecar knows that the consumer can resume its session: it has settled something."""
    publish(sidecar, b"0")
    await (await consumer.take()).ack()


def test_handlers_go_on_while_the_connection_is_cut_again_and_again(sidecar: Sidecar, proxy: ProxyProcess) -> None:
    seen = Counter[bytes]()
    lock = threading.Lock()

    def handle(batch: offramp.Batch) -> None:
        with lock:
            seen.update(record.value or b"" for record in batch)

    worker = offramp.Worker("orders", handle, workers=4, address=proxy.address, resume=LONG)
    with ThreadPoolExecutor() as pool:
        run = pool.submit(worker.run)
        try:
            for round_ in range(10):
                publish(sidecar, *(b"%d" % (round_ * 100 + number) for number in range(100)))
                eventually(lambda: sidecar.status().counters.acked > 0)
                proxy.cut()
            eventually(lambda: sum(lane.committed for lane in sidecar.status().lanes) == 1_000)
        finally:
            worker.drain()
        run.result(timeout=WAIT_TIMEOUT)
    counters = sidecar.status().counters
    assert (len(seen), counters.acked) == (1_000, 1_000)
    # A session that was new when it was cut, so that the sidecar had not heard that its welcome was there.
    assert seen.total() - 1_000 <= counters.abandoned


def test_a_settlement_that_was_not_answered_is_settled_after_the_cut(sidecar: Sidecar, proxy: ProxyProcess) -> None:
    async def body() -> None:
        async with aio.connect("orders", address=proxy.address, resume=LONG) as consumer:
            await ready(sidecar, consumer)
            publish(sidecar, b"1")
            batch = await consumer.take()
            proxy.hold()
            answer = batch.ack()
            proxy.cut()
            proxy.flow()
            assert (await answer).status is SettleStatus.SETTLED
            assert not batch.lost

    asyncio.run(body())
    counters = sidecar.status().counters
    assert (counters.acked, counters.delivered, counters.abandoned) == (2, 2, 0)


def test_a_lease_is_extended_after_the_cut(sidecar: Sidecar, proxy: ProxyProcess) -> None:
    async def body() -> None:
        async with aio.connect("orders", address=proxy.address, resume=LONG, lease=30.0) as consumer:
            await ready(sidecar, consumer)
            publish(sidecar, b"1")
            batch = await consumer.take()
            proxy.hold()
            answer = batch.extend(50.0)
            proxy.cut()
            proxy.flow()
            assert await answer > 30.0
            await batch.ack()

    asyncio.run(body())


def test_what_is_in_hand_is_settled_if_it_drains_before_it_is_connected_again(
    sidecar: Sidecar, proxy: ProxyProcess
) -> None:
    taken, finish = threading.Event(), threading.Event()

    def handle(batch: offramp.Batch) -> None:
        if batch[0].value != b"0":
            taken.set()
            finish.wait(WAIT_TIMEOUT)

    worker = offramp.Worker("orders", handle, address=proxy.address, resume=LONG, prefetch=0)
    with ThreadPoolExecutor() as pool:
        run = pool.submit(worker.run)
        try:
            publish(sidecar, b"0")
            eventually(lambda: sidecar.status().counters.acked == 1)
            publish(sidecar, b"1", b"2")
            taken.wait(WAIT_TIMEOUT)
            proxy.hold()
            proxy.cut()
            eventually(lambda: not worker.connected)
            worker.drain()
            proxy.flow()
            eventually(lambda: sidecar.status().counters.resumed_sessions == 1)
        finally:
            finish.set()
            worker.drain()
        run.result(timeout=WAIT_TIMEOUT)
    counters = sidecar.status().counters
    assert (counters.acked, counters.abandoned, counters.released) == (2, 0, 0)


def test_after_the_time_is_over_what_was_in_hand_is_lost(sidecar: Sidecar, proxy: ProxyProcess) -> None:
    async def body() -> None:
        async with aio.connect("orders", address=proxy.address, resume=0.2) as consumer:
            await ready(sidecar, consumer)
            publish(sidecar, b"1")
            batch = await consumer.take()
            proxy.hold()
            proxy.cut()
            async with aio.connect("orders", address=sidecar.target) as other:
                again = await other.take()
                assert (again[0].attempt, again[0].possibly_processed) == (2, True)
                await again.ack()
            proxy.flow()
            await asyncio.to_thread(eventually, lambda: batch.lost)
            assert (await batch.ack()).status is SettleStatus.STALE
            assert consumer.connected

    asyncio.run(body())


def test_a_sidecar_that_was_restarted_resumes_nothing(sidecar: Sidecar, proxy: ProxyProcess) -> None:
    async def body() -> None:
        async with aio.connect("orders", address=proxy.address, resume=LONG) as consumer:
            publish(sidecar, b"1")
            batch = await consumer.take()
            await asyncio.to_thread(sidecar.restart)
            await asyncio.to_thread(eventually, lambda: batch.lost)
            assert (await batch.ack()).status is SettleStatus.UNKNOWN
            again = await consumer.take()
            assert again[0].possibly_processed
            await again.ack()

    asyncio.run(body())


def test_the_time_is_a_number_of_seconds() -> None:
    with pytest.raises(ValueError, match="resume: -1 is not"):
        Options(subscription="orders", credit=1, resume=-1)
