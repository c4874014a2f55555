"""Those who take batches, and when they come."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import offramp
from offramp._internal.inbox import TaskInbox
from offramp._internal.outbox import Outbox, PendingSettlement, Wakeup
from offramp._internal.session import Session
from offramp.answers import Answer
from offramp.options import Options
from offramp.v1 import consumer_pb2, record_pb2
from tests.clients.python.conftest import Blocking
from tests.clients.python.fake_sidecar import WAIT_TIMEOUT


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


class Settler:
    """Takes settlements as a connection does, but nothing writes them."""

    def __init__(self) -> None:
        self.outbox = Outbox(None)

    def ack(self, batch: offramp.Batch, *, automatic: bool) -> Any:
        self.outbox.settle(PendingSettlement(batch, None, automatic=automatic))
        return Answer()

    def settle(self, batch: offramp.Batch, settlement: record_pb2.Settlement, *, automatic: bool) -> Any:
        self.outbox.settle(PendingSettlement(batch, settlement, automatic=automatic))
        return Answer()

    def extend(self, batch: offramp.Batch, seconds: float) -> Any:
        raise AssertionError


def test_one_who_comes_before_a_pause_was_told_to_the_sidecar_is_not_overlooked() -> None:
    async def body() -> None:
        settler, inbox = Settler(), TaskInbox()
        options = Options(subscription="orders", credit=2, address="unix:/nowhere", patience=1e-9)
        session = Session(options, settler, inbox, settler.outbox, Wakeup(), lambda welcome: None)
        inbox.on_wait = session.on_wait
        session._on_batches([record_pb2.Batch(lease=b"1", records=[record_pb2.Record()])])
        session._check_patience()
        assert len(inbox) == 0
        taker = asyncio.create_task(inbox.take())
        await asyncio.sleep(0)
        said = []
        while (request := session._next_request()) is not None:
            said.append(consumer_pb2.ConsumeRequest.FromString(request))
        assert [request.credit.batches for request in said if request.HasField("credit")] == [1]
        taker.cancel()

    asyncio.run(body())
