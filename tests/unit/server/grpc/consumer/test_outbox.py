"""The outbox of a stream: answers and batches joined into frames."""

import asyncio

from offramp.v1 import consumer_pb2
from sidecar.model.records import ClosedBy, Delivery, SettleResult, SettleStatus
from sidecar.model.wire import encode_frame
from sidecar.server.grpc import responses
from sidecar.server.grpc.consumer.consume_stream import FRAME_BYTES, MAX_ANSWER_BYTES, MAX_BATCH_BYTES, Outbox
from tests.unit.server.grpc.service_kit import in_loop


def delivery(number: int, size: int = 100, records: int = 1) -> Delivery:
    frames = [encode_frame(None, bytes(size), (), 0, position) for position in range(records)]
    lease = number.to_bytes(16)
    return Delivery(lease, "orders", (0,), frames, records, sum(map(len, frames)), (), 30.0, ClosedBy.LINGER)


def result(number: int) -> bytes:
    return responses.settle_result(responses.CONSUME_RESULTS, SettleResult(number.to_bytes(16), SettleStatus.SETTLED))


def parse(frame: bytes) -> consumer_pb2.ConsumeResponse:
    return consumer_pb2.ConsumeResponse.FromString(frame)


@in_loop
async def test_batches_and_answers_share_a_frame() -> None:
    outbox = Outbox(1 << 22)
    for number in range(3):
        outbox.add_delivery(delivery(number))
        outbox.add_answers([result(number)])
    frame, leases = outbox.take()
    response = parse(frame)
    assert [batch.lease for batch in response.batches] == leases == [n.to_bytes(16) for n in range(3)]
    assert [int.from_bytes(one.lease) for one in response.results] == [0, 1, 2]
    outbox.close()
    assert not await outbox.filled()


@in_loop
async def test_frames_stay_within_their_size_and_nothing_is_lost_or_reordered() -> None:
    for limit in (4_096, 50_000, 1 << 22):
        outbox = Outbox(limit)
        for number in range(200):
            outbox.add_delivery(delivery(number, size=1_000))
            outbox.add_answers([result(number)])
        batches: list[int] = []
        answers: list[int] = []
        outbox.close()
        while await outbox.filled():
            frame, _ = outbox.take()
            assert len(frame) <= min(limit, FRAME_BYTES)
            batches += [int.from_bytes(batch.lease) for batch in parse(frame).batches]
            answers += [int.from_bytes(one.lease) for one in parse(frame).results]
        assert batches == answers == list(range(200))


@in_loop
async def test_a_batch_larger_than_a_frame_travels_alone() -> None:
    outbox = Outbox(1 << 22)
    outbox.add_answers([result(1)])
    outbox.add_delivery(delivery(1, size=2 * FRAME_BYTES))
    outbox.add_delivery(delivery(2))
    assert [len(outbox.take()[1]) for _ in range(3)] == [0, 1, 1]


@in_loop
async def test_what_was_not_taken_can_be_taken_back() -> None:
    outbox = Outbox(1 << 22)
    outbox.add_delivery(delivery(1, size=FRAME_BYTES))
    outbox.add_delivery(delivery(2))
    outbox.take()
    assert outbox.take_back() == [(2).to_bytes(16)]
    assert outbox.take_back() == []


@in_loop
async def test_there_is_no_room_while_too_many_answers_wait() -> None:
    outbox = Outbox(1 << 22)
    while (waits := asyncio.ensure_future(outbox.room())) and not waits.done():
        await asyncio.sleep(0)
        if not waits.done():
            break
        for number in range(1_000):
            outbox.add_answers([result(number)])
    size = len(outbox.take()[0])
    await waits
    assert size <= MAX_ANSWER_BYTES


def test_a_short_result_reads_the_same_as_one_made_by_the_generated_classes() -> None:
    from offramp.v1 import record_pb2
    from sidecar.model.records import Range

    for stale, detail in (((), ""), ((Range(1, 2), Range(5, 1)), "too late")):
        mine = SettleResult(b"lease", SettleStatus.STALE, stale, detail)
        field = responses.settle_result(responses.CONSUME_RESULTS, mine)
        (read,) = parse(field).results
        assert read == record_pb2.SettleResult(
            lease=b"lease",
            status=record_pb2.SETTLE_STATUS_STALE,
            stale=[record_pb2.Range(first=one.first, count=one.count) for one in stale],
            detail=detail,
        )


@in_loop
async def test_it_is_full_while_a_few_megabytes_of_batches_are_unwritten() -> None:
    outbox = Outbox(1 << 22)
    number = 0
    while not outbox.full:
        number += 1
        outbox.add_delivery(delivery(number, size=FRAME_BYTES // 2))
    assert MAX_BATCH_BYTES <= number * (FRAME_BYTES // 2 + 200) <= MAX_BATCH_BYTES + FRAME_BYTES
    outbox.take()
    assert not outbox.full
    for again in range(number):
        outbox.add_delivery(delivery(again, size=FRAME_BYTES))
    assert outbox.full
    outbox.take_back()
    assert not outbox.full
