"""What happens when the sidecar is away."""

import asyncio
import logging
from pathlib import Path

import grpc
import pytest

import offramp
from offramp import aio
from offramp.v1 import record_pb2 as pb
from tests.clients.python.fake_sidecar import FakeSidecar, fake_sidecar


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_a_sidecar_that_is_not_there_yet_is_waited_for_with_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "offramp")

    async def body() -> None:
        sidecar = FakeSidecar(tmp_path / "s")
        async with aio.connect("orders", address=sidecar.address) as consumer:
            # Long enough for several tries; more of them would show as more lines.
            assert await consumer.take(timeout=0.5) is None
            assert not consumer.connected
            await sidecar.start()
            await sidecar.offer([b"1"])
            await (await anext(consumer)).ack()
        await sidecar.stop()
        assert sidecar.of("ACK") == [b"1"]

    asyncio.run(body())
    (warning,) = lines(caplog, logging.WARNING)
    assert "orders: cannot reach the sidecar at unix:" in warning
    (connected,) = lines(caplog, logging.INFO)
    assert "connected to the sidecar" in connected


def test_a_token_file_that_is_being_written_anew_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")

    async def body() -> None:
        async with (
            fake_sidecar(tmp_path) as sidecar,
            aio.connect("orders", address=sidecar.address, token_file=str(token)) as consumer,
        ):
            await sidecar.begun(0)
            token.write_text("")
            await sidecar.restart()
            assert await consumer.take(timeout=0.5) is None
            token.write_text("new\n")
            await sidecar.offer([b"1"])
            await (await anext(consumer)).ack()

    asyncio.run(body())
    assert [line for line in lines(caplog, logging.WARNING) if "lost the sidecar" in line]


def test_workers_go_on_after_the_sidecar_restarts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:

            async def handle(batch: offramp.Batch) -> None: ...

            worker = aio.Worker("orders", handle, workers=4, address=sidecar.address)
            run = asyncio.create_task(worker.run())
            for life in range(3):
                if life:
                    await sidecar.restart()
                await sidecar.begun(life)
                await sidecar.offer([b"%d" % life])
                await sidecar.until(lambda life=life: len(sidecar.of("ACK")) == life + 1)
            worker.drain()
            await run
            assert sidecar.of("ACK") == [b"0", b"1", b"2"]

    asyncio.run(body())
    assert sum("lost the sidecar" in line for line in lines(caplog, logging.WARNING)) == 2


def test_a_batch_in_hand_when_the_sidecar_dies_is_lost_and_its_settlement_is_answered_unknown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                before = await anext(consumer)
                await sidecar.restart()
                again = await anext(consumer)
                assert before.lost
                assert not again.lost
                assert again[0].value == b"1"
                assert (again[0].attempt, again[0].possibly_processed) == (2, True)
                assert (await before.ack()).status is offramp.SettleStatus.UNKNOWN
                assert (await again.ack()).settled

    asyncio.run(body())
    lost, uncounted = lines(caplog, logging.WARNING)
    assert "lost the sidecar" in lost
    assert "did not count 1 settlement(s)" in uncounted


def test_prefetched_batches_of_a_lost_session_are_forgotten(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"], [b"2"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                (await anext(consumer)).ack()
                await sidecar.until(lambda: sidecar.of("ACK") == [b"1"])
                assert len(sidecar.sessions[0].sent) == 2
                await sidecar.restart()
                await sidecar.begun(1)
                again = await anext(consumer)
                assert (again[0].value, again[0].attempt) == (b"2", 2)
                assert (await again.ack()).settled
            assert sidecar.of("ACK") == [b"1", b"2"]

    asyncio.run(body())


def test_a_settlement_that_was_not_answered_is_said_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"], [b"2"])
            sidecar.deaf = True
            async with aio.connect("orders", address=sidecar.address) as consumer:
                first, second = (await anext(consumer)).ack(), (await anext(consumer)).nack("no")
                await sidecar.until(lambda: len(sidecar.sessions[0].settlements) == 2)
                sidecar.deaf = False
                sidecar.answer = lambda _: pb.SETTLE_STATUS_SETTLED
                await sidecar.restart()
                assert (await first).settled
                assert (await second).settled
            before, after = (
                [one.SerializeToString() for one in session.settlements[:2]] for session in sidecar.sessions
            )
            assert before == after

    asyncio.run(body())


def test_what_is_settled_while_the_sidecar_is_away_is_said_when_it_is_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                batch = await anext(consumer)
                await sidecar.stop()
                extended, answer = batch.extend(10), batch.ack()
                assert await extended == 0
                assert not answer.done
                sidecar.answer = lambda _: pb.SETTLE_STATUS_SETTLED
                await sidecar.start()
                assert (await answer).settled

    asyncio.run(body())


def test_one_who_leaves_while_the_sidecar_is_away_is_told_that_nobody_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                batch = await anext(consumer)
                await sidecar.stop()
                answer = batch.ack()
            assert (await answer).status is offramp.SettleStatus.UNANSWERED
            assert await batch.extend(10) == 0

    asyncio.run(body())
    assert "UNANSWERED" in caplog.text


def test_a_batch_that_is_settled_after_its_consumer_is_closed_does_no_harm(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"1"])
            consumer = aio.connect("orders", address=sidecar.address)
            batch = await consumer.take()
            assert batch is not None
            await sidecar.restart()
            await sidecar.begun(1)
            await consumer.close()
            assert (await batch.ack()).status is offramp.SettleStatus.UNANSWERED
            assert await batch.extend(5) == 0

    asyncio.run(body())


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, ""),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_SESSIONS"),
        (grpc.StatusCode.FAILED_PRECONDITION, "OF_A_NEWER_SIDECAR"),
    ],
)
def test_a_refusal_that_may_pass_is_waited_out(tmp_path: Path, code: grpc.StatusCode, reason: str) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            sidecar.refuse, sidecar.reason, sidecar.retryable = (code, "not now"), reason, True
            await sidecar.offer([b"1"])
            async with aio.connect("orders", address=sidecar.address) as consumer:
                assert await consumer.take(timeout=0.2) is None
                sidecar.refuse = None
                assert (await anext(consumer))[0].value == b"1"

    asyncio.run(body())


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, "SUBSCRIPTION_NOT_FOUND", offramp.errors.NotFound),
        (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", offramp.errors.InvalidRequest),
        (grpc.StatusCode.FAILED_PRECONDITION, "VERSION", offramp.errors.Incompatible),
        (grpc.StatusCode.FAILED_PRECONDITION, "MODE", offramp.errors.Refused),
        (grpc.StatusCode.PERMISSION_DENIED, "FORBIDDEN", offramp.errors.Forbidden),
        (grpc.StatusCode.UNAVAILABLE, "OF_A_NEWER_SIDECAR", offramp.errors.Refused),
        # What something between has made has no reason.
        (grpc.StatusCode.NOT_FOUND, "", offramp.errors.NotFound),
        (grpc.StatusCode.UNIMPLEMENTED, "", offramp.errors.Incompatible),
    ],
)
def test_a_refusal_that_will_not_pass_is_raised_with_the_sidecars_own_words_and_reason(
    tmp_path: Path, code: grpc.StatusCode, reason: str, kind: type[Exception]
) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            sidecar.refuse = (code, 'no "ordrs"; there are: orders')
            sidecar.reason = reason
            async with aio.connect("ordrs", address=sidecar.address) as consumer:
                for _ in range(2):
                    with pytest.raises(kind, match="there are: orders") as caught:
                        await anext(consumer)
                assert sidecar.address in str(caught.value)
                assert (type(caught.value), caught.value.reason) == (kind, reason)

            async def handle(batch: offramp.Batch) -> None: ...

            with pytest.raises(kind):
                await aio.Worker("ordrs", handle, workers=3, address=sidecar.address).run()

    asyncio.run(body())


def test_an_answer_out_of_turn_ends_the_client_with_a_clear_error(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar, aio.connect("orders", address=sidecar.address) as consumer:
            session = await sidecar.begun()
            session.out.results.add(lease=b"other", status=pb.SETTLE_STATUS_SETTLED)
            await sidecar.offer()
            with pytest.raises(offramp.errors.ProtocolBroken, match="not next"):
                await anext(consumer)

    asyncio.run(body())
