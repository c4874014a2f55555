"""Workers whose sidecar must remember what they have settled, by `Open`, `Fetch` and `Settle`.
`python -m benchmarks.programs.settled outcomes|answers ADDRESS SESSIONS BATCHES`.

`outcomes`: record by record, each with another outcome than the one before. `answers`: each session settles all that it
has fetched by another call, and stays. Waits for a line when everything is settled, with the sessions open.
"""

import sys
from collections.abc import Callable, Iterator

import grpc

from offramp.v1 import consumer_pb2 as pb
from offramp.v1 import consumer_pb2_grpc, record_pb2

#: seconds that a call may take
_TIMEOUT = 60.0
_MESSAGE_BYTES = 64 << 20

Settle = Callable[[record_pb2.Batch], record_pb2.Settlement]


def one_by_one(batch: record_pb2.Batch) -> record_pb2.Settlement:
    outcomes = ("OUTCOME_ACK", "OUTCOME_RELEASE")
    parts = [record_pb2.Part(first=index, count=1, outcome=outcomes[index % 2]) for index in range(len(batch.records))]
    return record_pb2.Settlement(lease=batch.lease, parts=parts, partial=True)


def whole(batch: record_pb2.Batch) -> record_pb2.Settlement:
    return record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_ACK)


def work(stub: consumer_pb2_grpc.ConsumerServiceStub, batches: int, settle: Settle) -> Iterator[pb.OpenResponse]:
    """A session that fetches and settles so many batches. Returns its stream, which keeps it open."""
    stream = stub.Open(pb.OpenRequest(subscription="bench", max_message_bytes=_MESSAGE_BYTES))
    session = next(stream).welcome.session
    for seq in range(1, batches + 1):
        request = pb.FetchRequest(session=session, seq=seq, wait_ms=10_000)
        fetched = stub.Fetch(request, timeout=_TIMEOUT)
        stub.Settle(pb.SettleRequest(settlements=map(settle, fetched.batches)), timeout=_TIMEOUT)
    result: Iterator[pb.OpenResponse] = stream
    return result


def main(way: str, address: str, sessions: int, batches: int) -> None:
    settle = {"outcomes": one_by_one, "answers": whole}[way]
    with grpc.insecure_channel(address, [("grpc.max_receive_message_length", _MESSAGE_BYTES)]) as channel:
        stub = consumer_pb2_grpc.ConsumerServiceStub(channel)  # type: ignore[no-untyped-call]
        streams = [work(stub, batches, settle) for _ in range(sessions)]
        print("settled", flush=True)
        sys.stdin.readline()
        for stream in streams:
            stream.cancel()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
