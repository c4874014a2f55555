"""Consumers and workers of asyncio, against a sidecar that is strict about the protocol."""

import asyncio
import logging
from collections import Counter
from pathlib import Path

import pytest

import offramp
from offramp import aio
from offramp.v1 import consumer_pb2, record_pb2
from tests.clients.python.fake_sidecar import fake_sidecar


def test_batches_come_one_after_the_other_and_the_session_ends_in_order(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1", b"2"], [b"3"])
            values = []
            async with aio.connect("orders", address=sidecar.address, name="me") as consumer:
                async for batch in consumer:
                    values += [record.value for record in batch]
                    batch.ack()
                    if len(values) == 3:
                        break
                assert consumer.connected
            assert values == [b"1", b"2", b"3"]
            (session,) = sidecar.sessions
            assert (session.hello.subscription, session.hello.credit.batches) == ("orders", 2)
            assert (session.hello.client.name, session.hello.client.library) == ("me", "offramp")
            await sidecar.until(lambda: session.ended)
            assert session.draining
            assert session.half_closed
            assert sidecar.of("ACK") == [b"1", b"2", b"3"]

    asyncio.run(body())


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, (b"x", "ACK", "", None)),
        (ValueError("broken"), (b"x", "NACK", "ValueError: broken", None)),
        (offramp.Retry("later", after=30), (b"x", "NACK", "later", 30_000)),
        (offramp.Retry(), (b"x", "NACK", "", None)),
        (offramp.Reject("never"), (b"x", "REJECT", "never", None)),
        (offramp.Release(), (b"x", "RELEASE", "", None)),
        (offramp.Overloaded("busy", after=0), (b"x", "OVERLOADED", "busy", 0)),
        (asyncio.CancelledError(), (b"x", "NACK", "CancelledError", None)),
    ],
)
def test_how_a_handler_ends_says_what_becomes_of_its_batch(
    tmp_path: Path, error: BaseException | None, outcome: object
) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"x"])

            async def handle(batch: offramp.Batch) -> None:
                worker.drain()
                if error is not None:
                    raise error

            worker = aio.Worker("orders", handle, address=sidecar.address)
            await worker.run()
            # What is to be tried again may come back before the drain is through; then it is released.
            first, *others = sidecar.outcomes
            assert first == outcome
            assert {said for _, said, *_ in others} <= {"RELEASE"}

    asyncio.run(body())


def test_records_that_a_failing_handler_marked_keep_their_marks(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"0", b"1", b"2", b"3"])

            async def handle(batch: offramp.Batch) -> None:
                worker.drain()
                batch[0].ack()
                batch[1].reject("bad")
                raise ConnectionError("gone")

            worker = aio.Worker("orders", handle, address=sidecar.address)
            await worker.run()
            assert [(value, said) for value, said, *_ in sidecar.outcomes][:4] == [
                (b"0", "ACK"),
                (b"1", "REJECT"),
                (b"2", "NACK"),
                (b"3", "NACK"),
            ]

    asyncio.run(body())


def test_a_handler_may_settle_its_batch_itself(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"x"])
            results = []

            async def handle(batch: offramp.Batch) -> None:
                results.append(await batch.reject("never"))
                worker.drain()
                raise ValueError("too late")

            worker = aio.Worker("orders", handle, address=sidecar.address)
            await worker.run()
            assert results[0].settled
            assert [said for _, said, *_ in sidecar.outcomes] == ["REJECT"]

    asyncio.run(body())


def test_many_workers_share_one_stream_and_their_settlements_share_requests(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer(*([b"%d" % number] for number in range(2_000)))
            running = Counter[str]()

            async def handle(batch: offramp.Batch) -> None:
                running["now"] += 1
                running["most"] = max(running["most"], running["now"])
                await asyncio.sleep(0)
                running["now"] -= 1

            worker = aio.Worker("orders", handle, workers=64, address=sidecar.address)
            run = asyncio.create_task(worker.run())
            await sidecar.until(lambda: len(sidecar.outcomes) == 2_000)
            worker.drain()
            await run
            (session,) = sidecar.sessions
            assert session.hello.credit.batches == 128
            assert running["most"] <= 64
            assert len(session.requests) < 1_000
            assert sorted(sidecar.of("ACK")) == sorted(b"%d" % number for number in range(2_000))

    asyncio.run(body())


def test_no_more_batches_are_in_hand_and_waiting_than_were_asked_for(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer(*([b"%d" % number] for number in range(50)))
            go = asyncio.Event()

            async def handle(batch: offramp.Batch) -> None:
                await go.wait()

            worker = aio.Worker("orders", handle, workers=3, prefetch=2, patience=60, address=sidecar.address)
            run = asyncio.create_task(worker.run())
            session = await sidecar.begun()
            await sidecar.until(lambda: len(session.sent) == 5)
            go.set()
            await sidecar.until(lambda: len(sidecar.outcomes) == 50)
            worker.drain()
            await run
            assert {request.credit.batches for request in session.requests if request.HasField("credit")} <= {5}

    asyncio.run(body())


def test_a_lease_is_asked_for_and_extended(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"x"])
            async with aio.connect("orders", address=sidecar.address, lease=20) as consumer:
                batch = await anext(consumer)
                assert batch.lease_for == 20
                assert await batch.extend(90) == 90
                await batch.ack()
                assert await batch.extend(90) == 0
            assert sidecar.sessions[0].hello.lease_ms == 20_000

    asyncio.run(body())


@pytest.mark.parametrize("status", ["STALE", "UNKNOWN"])
def test_a_settlement_that_does_not_count_is_logged_and_reported(
    tmp_path: Path, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            sidecar.answer = lambda _: f"SETTLE_STATUS_{status}"
            await sidecar.offer([b"secret"])
            told = []
            options = offramp.ConnectOptions(on_result=lambda *what: told.append(what), address=sidecar.address)
            async with aio.connect("orders", **options) as consumer:
                batch = await anext(consumer)
                result = await batch.ack()
            assert (result.settled, result.status.name) == (False, status)
            assert told == [(batch, result)]

    asyncio.run(body())
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert status in line
    assert "as the test says" in line
    assert "secret" not in line


def test_a_callback_that_fails_is_logged_and_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(batch: offramp.Batch, result: offramp.SettleResult) -> None:
        raise ValueError("oops")

    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"], [b"2"])
            async with aio.connect("orders", address=sidecar.address, on_result=fail) as consumer:
                for _ in range(2):
                    assert (await (await anext(consumer)).ack()).settled

    asyncio.run(body())
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["on_result failed"] * 2


def test_a_batch_that_no_worker_takes_in_time_is_given_back_and_less_is_asked_for(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"], [b"2"])
            async with aio.connect("orders", address=sidecar.address, patience=0.05) as consumer:
                slow = await anext(consumer)
                await sidecar.until(lambda: sidecar.of("RELEASE") == [b"2"])
                session = sidecar.sessions[0]
                assert session.credit == 1
                slow.ack()
                # It comes again only now that the slow one is done.
                again = await anext(consumer)
                assert again[0].value == b"2"
                again.ack()

    asyncio.run(body())


def test_a_consumer_that_nobody_asks_holds_no_batch(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"])
            async with aio.connect("orders", address=sidecar.address, patience=0.05) as consumer:
                await sidecar.until(lambda: sidecar.of("RELEASE") == [b"1"])
                assert sidecar.sessions[0].credit == 0
                assert (await anext(consumer))[0].value == b"1"

    asyncio.run(body())


def test_revoked_batches_are_lost_and_those_that_wait_are_not_handed_out(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"], [b"2"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                batch = await anext(consumer)
                session = sidecar.sessions[0]
                await sidecar.until(lambda: len(session.sent) == 2)
                await sidecar.notice(consumer_pb2.NOTICE_KIND_REVOKED, session.sent)
                await sidecar.until(lambda: sidecar.of("RELEASE") == [b"2"])
                assert batch.lost
                batch.ack()

    asyncio.run(body())


def test_batches_of_lanes_that_move_can_be_settled_and_those_that_wait_are_not_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "offramp")

    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"], [b"2"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                batch = await anext(consumer)
                session = sidecar.sessions[0]
                await sidecar.until(lambda: len(session.sent) == 2)
                await sidecar.notice(consumer_pb2.NOTICE_KIND_REVOKED, session.sent, settle_for_ms=5_000)
                await sidecar.until(lambda: sidecar.of("RELEASE") == [b"2"])
                assert not batch.lost
                assert (await batch.ack()).settled

    asyncio.run(body())
    assert "lanes move to another sidecar; 5 seconds are left to settle" in caplog.text


def test_what_the_sidecar_refuses_is_nacked_so_that_it_does_not_stay_in_hand(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1", b"2"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                batch = await anext(consumer)
                refused = record_pb2.SETTLE_STATUS_REFUSED
                sidecar.answer = lambda settlement: refused if settlement.outcome == record_pb2.OUTCOME_ACK else None
                assert (await batch.ack()).status is offramp.SettleStatus.REFUSED
                await sidecar.until(lambda: sidecar.of("NACK") == [b"1", b"2"])

    asyncio.run(body())


def test_notices_that_this_client_does_not_know_are_ignored_and_others_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "offramp")

    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar, aio.connect("orders", address=sidecar.address) as consumer:
            await sidecar.begun()
            await sidecar.notice(99)
            await sidecar.notice(consumer_pb2.NOTICE_KIND_PAUSED, detail="by hand")
            await sidecar.offer([b"1"])
            await (await anext(consumer)).ack()

    asyncio.run(body())
    assert "orders: the subscription is paused: by hand" in caplog.text


def test_one_who_forgets_to_settle_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"], [b"2"], [b"3"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                kept = [await anext(consumer), await anext(consumer)]
                assert await consumer.take(timeout=0.01) is None
                assert len(kept) == 2

    asyncio.run(body())
    assert "2 batches are in hand and unsettled" in caplog.text


def test_a_settlement_larger_than_a_request_travels_in_pieces_and_gets_one_answer(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path, max_request_bytes=64 << 10) as sidecar:
            await sidecar.offer([b"%d" % number for number in range(500)])
            told = []
            options = offramp.ConnectOptions(on_result=lambda *what: told.append(what), address=sidecar.address)
            async with aio.connect("orders", **options) as consumer:
                batch = await anext(consumer)
                for record in batch:
                    record.reject(f"{record.index} " * 200)
                result = await batch.ack()
            assert result.settled
            assert len(told) == 1
            assert len(sidecar.of("REJECT")) == 500
            assert len(sidecar.sessions[0].settlements) > 1

    asyncio.run(body())


def test_a_plain_function_is_no_handler_for_tasks() -> None:
    with pytest.raises(TypeError, match="async def"):
        aio.Worker("orders", lambda batch: None)  # type: ignore[arg-type, return-value]


def test_a_callable_object_may_be_a_handler(tmp_path: Path) -> None:
    class Handle:
        async def __call__(self, batch: offramp.Batch) -> None:
            worker.drain()

    worker = aio.Worker("orders", Handle(), address=f"unix:{tmp_path}/s")

    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"])
            await worker.run()
            assert sidecar.of("ACK") == [b"1"]

    asyncio.run(body())


def test_an_answer_may_be_awaited_by_several_and_one_who_stops_waiting_spoils_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            sidecar.deaf = True
            await sidecar.offer([b"1"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                answer = (await anext(consumer)).ack()
                impatient = asyncio.ensure_future(_wait(answer))
                patient = asyncio.ensure_future(_wait(answer))
                await sidecar.until(lambda: sidecar.sessions[0].settlements)
                impatient.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await impatient
                with pytest.raises(RuntimeError, match="await"):
                    answer.result()
                sidecar.deaf = False
                await sidecar.restart()
                assert (await patient).status is offramp.SettleStatus.UNKNOWN

    async def _wait(answer: offramp.Answer[offramp.SettleResult]) -> offramp.SettleResult:
        return await answer

    asyncio.run(body())
