"""Those who take batches, and when they come."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import offramp
from offramp.v1 import consumer_pb2
from tests.clients.python.conftest import Blocking
from tests.clients.python.fake_sidecar import WAIT_TIMEOUT
from tests.clients.python.offline_session import Offline


def poll(consumer: offramp.Consumer, timeout: float) -> offramp.Batch:
    """Never waits for longer than this, but asks again and again."""
    ends = time.monotonic() + WAIT_TIMEOUT
    while time.monotonic() < ends:
        if (batch := consumer.take(timeout)) is not None:
            return batch
    pytest.fail("no batch came")


@pytest.mark.parametrize("timeout", [0, -1, 1e-9])
def test_one_who_polls_without_waiting_gets_what_was_given_back_when_nobody_came(
    sidecar: Blocking, timeout: float
) -> None:
    sidecar.offer([b"1"], [b"2"])
    with offramp.connect("orders", address=sidecar.address, patience=0.05) as consumer:
        sidecar.until(lambda: sidecar.fake.sessions and sidecar.fake.sessions[0].credit == 0)
        values = set()
        while len(values) < 2:
            batch = poll(consumer, timeout)
            values.add(batch[0].value)
            batch.ack()


def test_threads_that_take_their_first_batch_at_once_share_one_session(sidecar: Blocking) -> None:
    together = threading.Barrier(8)
    consumer = offramp.connect("orders", address=sidecar.address, credit=8)

    def take() -> offramp.Batch | None:
        together.wait(timeout=WAIT_TIMEOUT)
        return consumer.take(timeout=WAIT_TIMEOUT)

    with ThreadPoolExecutor(8) as pool:
        taken = [pool.submit(take) for _ in range(8)]
        sidecar(sidecar.fake.begun())
        sidecar.offer(*([b"%d" % number] for number in range(8)))
        for one in taken:
            batch = one.result(timeout=WAIT_TIMEOUT)
            assert batch is not None
            batch.ack()
    consumer.close()
    sidecar.until(lambda: all(session.ended for session in sidecar.fake.sessions))
    assert len(sidecar.fake.sessions) == 1


def credits_of(requests: list[consumer_pb2.ConsumeRequest]) -> list[int]:
    return [request.credit.batches for request in requests if request.HasField("credit")]


def test_one_who_comes_before_a_pause_was_told_to_the_sidecar_is_not_overlooked() -> None:
    async def body() -> None:
        client = Offline(credit=2, patience=1e-9)
        client.receive(batches=1, records=1)
        client.session._check_patience()
        assert len(client.inbox) == 0
        taker = asyncio.create_task(client.inbox.take())
        await asyncio.sleep(0)
        assert credits_of(client.requests()) == [1]
        taker.cancel()

    asyncio.run(body())


def test_threads_that_are_fast_again_get_their_credit_back() -> None:
    async def body() -> None:
        client = Offline(credit=2)
        client.receive(batches=2, records=1)
        first, second = await client.take(2)
        client.session._control.shrink(1)
        assert credits_of(client.requests()) == [1]
        await asyncio.to_thread(first.ack)
        assert credits_of(client.requests()) == []
        await asyncio.to_thread(second.ack)
        assert credits_of(client.requests()) == [2]

    asyncio.run(body())
