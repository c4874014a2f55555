"""Consuming with nothing but the generated stubs: a session by Open, batches by Fetch.

pip install grpcio grpcio-tools
python -m grpc_tools.protoc -I proto --python_out=stubs --grpc_python_out=stubs proto/offramp/v1/{record,consumer}.proto
PYTHONPATH=stubs python consume.py unix:/run/offramp/offramp.sock orders
"""

import sys

import grpc

from offramp.v1 import consumer_pb2 as pb
from offramp.v1 import consumer_pb2_grpc
from offramp.v1.record_pb2 import OUTCOME_ACK, OUTCOME_NACK, Settlement


def handle(record):
    print(record.value.decode(), flush=True)


def settle(batch):
    """Ack the batch if all went well, or else all but the first record that failed, and what comes after it."""
    for index, record in enumerate(batch.records):
        try:
            handle(record)
        except Exception as error:
            failed = {
                "first": index,
                "count": len(batch.records) - index,
                "outcome": OUTCOME_NACK,
                "reason": str(error),
            }
            return Settlement(lease=batch.lease, outcome=OUTCOME_ACK, parts=[failed])
    return Settlement(lease=batch.lease, outcome=OUTCOME_ACK)


def consume(address, subscription):
    # The sidecar never asks a blocked client for a sign of life; the client should not ask either.
    with grpc.insecure_channel(address, [("grpc.keepalive_time_ms", 2**31 - 1)]) as channel:
        stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
        client = pb.Client(language="python", library="generated")
        # The stream is the session: keep it, and leave it alone.
        session = stub.Open(pb.OpenRequest(subscription=subscription, client=client), wait_for_ready=True)
        name = next(session).welcome.session
        seq, settlements = 0, []
        while True:
            seq += 1
            answer = stub.Fetch(pb.FetchRequest(session=name, seq=seq, wait_ms=10_000, settlements=settlements))
            settlements = [settle(batch) for batch in answer.batches]


if __name__ == "__main__":
    consume(*sys.argv[1:])
