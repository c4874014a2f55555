"""Numbered calls: a repeated call gets the same response, and nothing is done twice."""

from pathlib import Path

import grpc
import pytest

from offramp.v1 import consumer_pb2, record_pb2
from tests.unit.server.grpc.consumer.fetch_kit import Session, leave_unread_while_waiting, refused, values
from tests.unit.server.grpc.service_kit import ONE, SETTLED, Kit, in_loop, serving, settlement, with_sidecar


@with_sidecar(batch=ONE)
async def test_repeating_the_last_number_gets_the_same_bytes_and_settles_nothing_again(kit: Kit) -> None:
    await kit.publish([b"a", b"b", b"c"])
    session = await Session.open(kit)
    first = await session.fetch()
    second = await session.fetch(settlement(first.batches[0]))
    repeated = await session.fetch(settlement(first.batches[0]), seq=2)
    assert repeated.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)
    assert (await kit.status()).counters.delivered == 2
    assert (await kit.status()).counters.stale_settlements == 0


@pytest.mark.parametrize("seq", [0, 2, 99])
@with_sidecar()
async def test_the_first_number_must_be_one(kit: Kit, seq: int) -> None:
    session = await Session.open(kit)
    code, details = await refused(session.fetch(seq=seq))
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "must be 1" in details


@with_sidecar(batch=ONE)
async def test_a_number_out_of_turn_is_refused_and_settles_nothing(kit: Kit) -> None:
    await kit.publish([b"a", b"b"])
    session = await Session.open(kit)
    first = await session.fetch()
    for seq in (0, 3, 7):
        code, details = await refused(session.fetch(settlement(first.batches[0]), seq=seq))
        assert code == grpc.StatusCode.FAILED_PRECONDITION
        assert "1 or 2" in details
    assert (await kit.status()).counters.acked == 0
    assert values(await session.fetch(seq=2)) == [b"b"]


@with_sidecar()
async def test_a_call_that_repeats_one_that_still_waits_takes_its_place(kit: Kit) -> None:
    session = await Session.open(kit)
    waiting = session.fetch(seq=1)
    await kit.until(lambda status: status.sessions[0].credit_batches == 1)
    instead = session.fetch(seq=1)
    code, _ = await refused(waiting)
    assert code == grpc.StatusCode.ABORTED
    await kit.publish([b"a"])
    assert values(await instead) == [b"a"]
    assert values(await session.fetch(seq=1)) == [b"a"]


@with_sidecar()
async def test_the_next_number_ends_a_call_that_still_waits(kit: Kit) -> None:
    session = await Session.open(kit)
    waiting = session.fetch(seq=1)
    await kit.until(lambda status: status.sessions[0].credit_batches == 1)
    following = session.fetch(seq=2)
    assert (await refused(waiting))[0] == grpc.StatusCode.ABORTED
    await kit.publish([b"a"])
    assert values(await following) == [b"a"]


@pytest.mark.parametrize("seq", [1, 2])
@with_sidecar()
async def test_a_call_that_wants_nothing_leaves_no_credit_of_the_one_that_it_replaced(kit: Kit, seq: int) -> None:
    """A batch delivered between calls would wait for nobody."""

    session = await Session.open(kit)
    waiting = session.fetch(seq=1)
    await kit.until(lambda status: status.sessions[0].credit_batches == 1)
    await session.fetch(seq=seq, want=consumer_pb2.Credit(batches=0))
    assert (await refused(waiting))[0] == grpc.StatusCode.ABORTED
    assert (await kit.status()).sessions[0].credit_batches == 0
    await kit.publish([b"a"])
    assert values(await (await Session.open(kit)).fetch()) == [b"a"]


@with_sidecar()
async def test_a_call_given_up_by_its_client_is_settled_and_its_repetition_brings_the_rest(kit: Kit) -> None:
    await kit.publish([b"a"])
    session = await Session.open(kit)
    first = await session.fetch()
    done = settlement(first.batches[0])
    given_up = session.fetch(done)
    await kit.until(lambda status: status.counters.acked == 1)
    given_up.cancel()
    await kit.until(lambda status: status.sessions[0].credit_batches == 0)
    await kit.publish([b"b"])
    repeated = await session.fetch(done, seq=2)
    assert [result.status for result in repeated.results] == [SETTLED]
    assert values(repeated) == [b"b"]


@with_sidecar(batch=ONE)
async def test_a_refused_settlement_is_a_result_beside_the_next_batch(kit: Kit) -> None:
    await kit.publish([b"a", b"b"])
    session = await Session.open(kit)
    batch = (await session.fetch()).batches[0]
    response = await session.fetch(settlement(batch, 0))
    (result,) = response.results
    assert (result.lease, result.status) == (batch.lease, record_pb2.SETTLE_STATUS_REFUSED)
    assert values(response) == [b"b"]


@with_sidecar(batch=ONE)
async def test_a_refused_call_has_settled_nothing_and_does_not_use_up_its_number(kit: Kit) -> None:
    await kit.publish([b"a", b"b"])
    session = await Session.open(kit, max_message_bytes=4_096)
    batch = (await session.fetch()).batches[0]
    code, text = await refused(session.fetch(*[settlement(batch)] * 100))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "send at most 85 at a time" in text
    assert (await kit.status()).counters.acked == 0
    assert values(await session.fetch(settlement(batch), seq=2)) == [b"b"]


@in_loop
async def test_a_call_that_may_have_no_answer_now_leaves_its_batch_to_the_call_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_unread_while_waiting(monkeypatch)
    async with serving(tmp_path, batch=ONE) as kit:
        await kit.publish([b"a", b"b"])
        session = await Session.open(kit)
        assert (await refused(session.fetch()))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        again = await session.fetch(seq=1)
        assert (values(again), len(again.batches[0].redeliveries)) == ([b"a"], 0)
