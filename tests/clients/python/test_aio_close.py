"""How an asyncio consumer ends, and what becomes of the batches in hand."""

import asyncio
import sys
from pathlib import Path

import pytest

import offramp
from offramp import aio
from offramp._internal import connection
from offramp.v1 import record_pb2 as pb
from tests.clients.python.fake_sidecar import PendingBatch, fake_sidecar


def test_batches_in_hand_are_released_when_the_consumer_is_closed(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"], [b"2"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                batch = await anext(consumer)
                await sidecar.until(lambda: len(sidecar.sessions[0].sent) == 2)
            assert sorted(sidecar.of("RELEASE")) == [b"1", b"2"]
            assert batch.settled
            with pytest.raises(offramp.errors.Closed):
                await consumer.take()

    asyncio.run(body())


def test_batches_in_hand_are_nacked_when_the_block_fails(tmp_path: Path) -> None:
    async def fail(address: str) -> None:
        async with aio.connect("orders", address=address) as consumer:
            await anext(consumer)
            raise ValueError("poison")

    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"])
            with pytest.raises(ValueError, match="poison"):
                await fail(sidecar.address)
            assert sidecar.outcomes == [(b"1", "NACK", "ValueError: poison", None)]

    asyncio.run(body())


def test_batches_in_hand_are_possibly_processed_when_the_task_is_cancelled(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"], [b"2"])
            took = asyncio.Event()

            async def handle(batch: offramp.Batch) -> None:
                if batch[0].value == b"1":
                    return
                took.set()
                await asyncio.Event().wait()

            run = asyncio.create_task(aio.Worker("orders", handle, address=sidecar.address).run())
            await took.wait()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            await sidecar.until(lambda: sidecar.sessions[0].ended)
            assert sidecar.of("ACK") == [b"1"]
            assert not sidecar.sessions[0].half_closed
            (pending,) = sidecar.ready
            assert (pending.records[0].value, pending.attempt, pending.possibly_processed) == (b"2", 2, True)

    asyncio.run(body())


def test_handlers_that_outlast_the_drain_are_cancelled_and_their_batches_possibly_processed(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"])

            async def handle(batch: offramp.Batch) -> None:
                worker.drain()
                await asyncio.Event().wait()

            worker = aio.Worker("orders", handle, address=sidecar.address, drain_timeout=0.01)
            await worker.run()
            await sidecar.until(lambda: sidecar.sessions[0].ended)
            assert sidecar.outcomes == []
            assert sidecar.ready[0].possibly_processed

    asyncio.run(body())


def test_what_was_settled_last_is_answered_before_the_stream_ends(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                answer = (await anext(consumer)).ack()
                assert not answer.done
            assert answer.done
            assert (await answer).settled

    asyncio.run(body())


def test_a_sidecar_that_does_not_answer_keeps_nobody_from_leaving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        monkeypatch.setattr(connection, "CLOSE_TIMEOUT", 0.05)
        async with fake_sidecar(tmp_path) as sidecar:
            sidecar.deaf = True
            await sidecar.offer([b"1"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                answer = (await anext(consumer)).ack()
                sidecar.stay_open = True
            assert (await answer).status is offramp.SettleStatus.UNANSWERED

    asyncio.run(body())
    assert "did not answer within" in caplog.text
    assert "did not count 1 settlement" in caplog.text


def test_batches_that_cross_with_the_last_words_are_given_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            sidecar.crossing = [PendingBatch([pb.Record(value=b"late")])]
            await sidecar.offer([b"1"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                batch = await anext(consumer)
                consumer.drain()
                await sidecar.until(lambda: sidecar.of("RELEASE") == [b"late"])
                with pytest.raises(offramp.errors.Drained):
                    await consumer.take()
                await batch.ack()
            assert sidecar.of("ACK") == [b"1"]

    asyncio.run(body())


def test_a_handler_that_ends_the_process_is_heard_by_whoever_runs_the_worker(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"])

            async def handle(batch: offramp.Batch) -> None:
                sys.exit(3)

            worker = aio.Worker("orders", handle, address=sidecar.address)
            with pytest.raises(SystemExit) as caught:
                await worker.run()
            assert caught.value.code == 3
            assert sidecar.of("NACK") == [b"1"]
            assert sidecar.sessions[0].half_closed

    asyncio.run(body())


def test_draining_a_worker_that_is_done_does_nothing(tmp_path: Path) -> None:
    async def handle(batch: offramp.Batch) -> None: ...

    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            worker = aio.Worker("orders", handle, address=sidecar.address)
            worker.drain()
            await worker.run()
            workers.append(worker)
            with pytest.raises(RuntimeError, match="already"):
                await worker.run()

    workers: list[aio.Worker] = []
    asyncio.run(body())
    workers[0].drain()
