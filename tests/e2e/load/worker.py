"""A worker process under load: `python -m tests.e2e.load.worker WAY TARGET JOURNAL SLOW STUCK OVERDUE LEASE`.

WAY is `threads` for the Python client with several workers, `stream` for the same with one worker that has one batch at
a time, or `fetch` for a process that blocks, with generated stubs only.
SLOW, STUCK and OVERDUE are how many seconds records of these kinds take, the last one only the first time. LEASE is how
many seconds it asks to have a batch for; 0: as long as it lives. It works until it is killed, or until SIGTERM.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc

from offramp import Batch, SettleResult, SettleStatus, Worker
from offramp.v1 import consumer_pb2, consumer_pb2_grpc, record_pb2
from tests.e2e.load.journal import Journal, Word, digest_of, place_of_ref
from tests.e2e.load.kinds import Kind, kind_of

SUBSCRIPTION = "orders"
THREADS = 3
#: seconds that a parked record asks for
LATER = 1.0
_WORDS = {
    record_pb2.OUTCOME_REJECT: Word.REJECTED,
    record_pb2.OUTCOME_NACK: Word.NACKED,
    record_pb2.OUTCOME_ACK: Word.ACKED,
}


class LoadWorker:
    """Decides on outcomes, and notes them first. Shared by all kinds of workers."""

    def __init__(self, journal: Journal, slow: float, stuck: float, overdue: float, lease: float) -> None:
        self.lease = lease
        self._journal = journal
        self._naps = {Kind.SLOW: slow, Kind.STUCK: stuck}
        self._overdue = overdue

    def work(self, batch: record_pb2.Batch, told: Sequence[tuple[int, bool]]) -> list[record_pb2.Part]:
        """The outcomes of a batch that differ from an ack. Raises `ValueError` for a batch that fails."""
        noted = [(r.lane, place_of(r), *flags) for r, flags in zip(batch.records, told, strict=True)]
        digests = (digest_of(r.key, r.value) for r in batch.records)
        taken = [(*one, digest) for one, digest in zip(noted, digests, strict=True)]
        self._journal.note(Word.TOOK, batch.lease, taken)
        kinds = [kind_of(record.value) for record in batch.records]
        if Kind.KILLER in kinds:
            os.kill(os.getpid(), signal.SIGKILL)
        if Kind.POISON in kinds:
            self._journal.note(Word.NACKED, batch.lease, noted)
            raise ValueError("poison")
        time.sleep(sum(self._naps.get(kind, 0.0) for kind in kinds))
        if (Kind.OVERDUE, (1, False)) in zip(kinds, told, strict=True):
            time.sleep(self._overdue)
        outcomes = [_outcome(kind, attempt) for kind, (attempt, _) in zip(kinds, told, strict=True)]
        # Before the sidecar hears of it: what it commits must be found here.
        for outcome, word in _WORDS.items():
            if decided := [one for one, said in zip(noted, outcomes, strict=True) if said == outcome]:
                self._journal.note(word, batch.lease, decided)
        return [
            record_pb2.Part(
                first=index,
                count=1,
                outcome=outcome,
                reason="no",
                retry_after_ms=int(LATER * 1000) if kind is Kind.LATER else None,
            )
            for index, (kind, outcome) in enumerate(zip(kinds, outcomes, strict=True))
            if outcome != record_pb2.OUTCOME_ACK
        ]

    def settled(self, batch: record_pb2.Batch, parts: Sequence[record_pb2.Part]) -> None:
        """The sidecar counts it."""
        others = {part.first for part in parts}
        acked = (record for index, record in enumerate(batch.records) if index not in others)
        self._journal.note(Word.SETTLED, batch.lease, ((one.lane, place_of(one), 0, False) for one in acked))


def place_of(record: record_pb2.Record) -> int:
    """What the broker itself calls it, as a number, where that is more than its position: a message id of Pulsar."""
    return place_of_ref(record.ref.decode()) if record.ref else record.position


def _outcome(kind: Kind, attempt: int) -> "record_pb2.Outcome":
    if kind is Kind.BAD:
        return record_pb2.OUTCOME_REJECT
    if kind in (Kind.FLAKY, Kind.LATER) and attempt == 1:
        return record_pb2.OUTCOME_NACK
    return record_pb2.OUTCOME_ACK


def stream(target: str, worker: LoadWorker, *, workers: int = 1, prefetch: int | None = 0) -> None:
    parts_of: dict[bytes, list[record_pb2.Part]] = {}

    def handle(batch: Batch) -> None:
        told = [batch.redelivery(index) for index in range(len(batch))]
        try:
            parts = worker.work(batch.message, told)
        except ValueError as error:
            batch.nack(str(error))
            return
        for part in parts:
            record = batch[part.first]
            if part.outcome == record_pb2.OUTCOME_REJECT:
                record.reject(part.reason)
            else:
                record.nack(part.reason, after=part.retry_after_ms / 1000 if part.HasField("retry_after_ms") else None)
        parts_of[batch.lease] = parts

    def answered(batch: Batch, result: SettleResult) -> None:
        parts = parts_of.pop(batch.lease, None)
        if parts is not None and result.status is SettleStatus.SETTLED:
            worker.settled(batch.message, parts)

    Worker(
        SUBSCRIPTION,
        handle,
        workers=workers,
        prefetch=prefetch,
        lease=worker.lease or None,
        address=target,
        on_result=answered,
    ).run()


def threads(target: str, worker: LoadWorker) -> None:
    stream(target, worker, workers=THREADS, prefetch=None)


def fetch(target: str, worker: LoadWorker) -> None:
    while True:
        try:
            with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
                _fetch(consumer_pb2_grpc.ConsumerServiceStub(channel), worker)  # type: ignore[no-untyped-call]
        except grpc.RpcError:
            # Not how a client should wait, but it needs no code.
            time.sleep(0.05)


def _fetch(stub: consumer_pb2_grpc.ConsumerServiceStub, worker: LoadWorker) -> None:
    # The session lives as long as this stream.
    opened = stub.Open(consumer_pb2.OpenRequest(subscription=SUBSCRIPTION, lease_ms=int(worker.lease * 1000)))
    session = next(opened).welcome.session
    said: list[record_pb2.Settlement] = []
    waiting: dict[bytes, record_pb2.Batch] = {}
    seq = 0
    while True:
        seq += 1
        request = consumer_pb2.FetchRequest(session=session, seq=seq, settlements=said, wait_ms=100)
        response = stub.Fetch(request, timeout=20.0)
        for settlement, result in zip(said, response.results, strict=True):
            batch = waiting.pop(settlement.lease)
            if (settlement.outcome, result.status) == (record_pb2.OUTCOME_ACK, record_pb2.SETTLE_STATUS_SETTLED):
                worker.settled(batch, settlement.parts)
        said = [_settle(batch, worker) for batch in response.batches]
        waiting = {batch.lease: batch for batch in response.batches}


def _settle(batch: record_pb2.Batch, worker: LoadWorker) -> record_pb2.Settlement:
    try:
        parts = worker.work(batch, [*_told(batch)])
    except ValueError as error:
        return record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_NACK, reason=str(error))
    return record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_ACK, parts=parts)


def _told(batch: record_pb2.Batch) -> Iterator[tuple[int, bool]]:
    for index in range(len(batch.records)):
        known = (one for one in batch.redeliveries if one.first <= index < one.first + one.count)
        yield next(((one.attempt, one.possibly_processed) for one in known), (1, False))


def main(way: str, target: str, journal: str, *seconds: str) -> None:
    worker = LoadWorker(Journal(Path(journal)), *map(float, seconds))
    {"threads": threads, "stream": stream, "fetch": fetch}[way](target, worker)


if __name__ == "__main__":
    main(*sys.argv[1:])
