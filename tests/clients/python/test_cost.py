"""What a batch costs the client, in calls or lines rather than seconds, so load does not change it."""

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from offramp._internal import fork_safety
from offramp._internal.handlers import settle_by_result
from offramp.v1 import record_pb2
from tests.clients.python.offline_session import Offline
from tests.counting import calls_of, lines_of

FEW, MANY = 10, 1_000


def offline(test: Callable[[Offline], Awaitable[None]]) -> None:
    async def run() -> None:
        await test(Offline())

    asyncio.run(run())


def calls_of_a_batch(*, records: int, batches: int = MANY) -> float:
    """From the response that brings it to the answer to its ack, when so many come and go together."""
    calls = 0

    async def test(client: Offline) -> None:
        nonlocal calls
        # The first one of all fills caches.
        client.receive(batches=1, records=1)
        settle_by_result((await client.take(1))[0], None)
        client.send()
        calls += calls_of(lambda: client.receive(batches=batches, records=records))
        taken = await client.take(batches)
        calls += calls_of(lambda: [settle_by_result(batch, None) for batch in taken])
        calls += calls_of(client.send)

    offline(test)
    return calls / batches


def test_a_batch_costs_the_same_for_ten_records_and_for_a_thousand() -> None:
    assert calls_of_a_batch(records=FEW, batches=4) == calls_of_a_batch(records=MANY, batches=4)


def test_a_batch_of_one_among_many_costs_few_calls() -> None:
    assert calls_of_a_batch(records=1) < 50


def test_an_acked_batch_costs_no_message_of_protobuf() -> None:
    async def test(client: Offline) -> None:
        client.receive(batches=FEW, records=1)
        for batch in await client.take(FEW):
            batch.ack()
        acks = [pending._settlement for pending in client.outbox._settlements]
        assert acks == [None] * FEW
        assert [one.outcome for one in client.send()] == [record_pb2.OUTCOME_ACK] * FEW

    offline(test)


def test_a_record_that_is_touched_costs_the_same_whatever_lies_beside_it() -> None:
    async def test(client: Offline) -> None:
        client.receive(batches=1, records=MANY)
        client.receive(batches=1, records=FEW)
        large, small = await client.take(2)
        assert lines_of(lambda: large[5].value) == lines_of(lambda: small[5].value)

    offline(test)


@pytest.mark.parametrize("settled", [False, True])
def test_a_worker_that_waits_costs_the_same_however_many_batches_are_in_hand(settled: bool) -> None:
    """`settled`: all of them were settled, and nothing is sent yet."""

    def lines(in_hand: int) -> int:
        seen = 0

        async def test(client: Offline) -> None:
            nonlocal seen
            client.receive(batches=in_hand, records=1)
            taken = await client.take(in_hand)
            for batch in taken if settled else ():
                batch.ack()
            client.session._control.shrink(in_hand)
            seen = lines_of(client.session.on_wait)

        offline(test)
        return seen

    assert lines(FEW) == lines(MANY)


def test_a_settlement_does_not_ask_the_system_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pytest.fail("asked"))
    fork_safety.check_opened_here(here)
