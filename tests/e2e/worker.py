"""A worker process for tests that kill, stop and restart workers: `python -m tests.e2e.worker MODE TARGET`.

It says what happens as JSON lines on standard output and then does nothing more than its mode says:
    consume  take one batch by Consume, hold it
    open     take one batch by Open and Fetch, hold it
    wait     open a session and wait in Fetch for a batch that never comes
    alone    wait in Fetch without a session
    settle   as consume, and settle it when a line is written to standard input; go on until that ends
"""

import json
import queue
import sys
import time
from collections.abc import Iterator

import grpc

from offramp.v1 import consumer_pb2, consumer_pb2_grpc, record_pb2

#: what a client does whose process may be stopped for longer than a ping may take
OPTIONS = [("grpc.http2.bdp_probe", 0), ("grpc.keepalive_time_ms", 2**31 - 1)]


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


def say_batch(batch: record_pb2.Batch) -> None:
    say(event="batch", lease=batch.lease.hex(), values=[record.value.decode() for record in batch.records])


def consume(stub: consumer_pb2_grpc.ConsumerServiceStub, *, settle: bool) -> None:
    requests: queue.Queue[consumer_pb2.ConsumeRequest] = queue.Queue()

    def sent() -> Iterator[consumer_pb2.ConsumeRequest]:
        credit = consumer_pb2.Credit(batches=1)
        yield consumer_pb2.ConsumeRequest(hello=consumer_pb2.Hello(subscription="orders", credit=credit))
        while True:
            yield requests.get()

    for response in stub.Consume(sent()):
        if response.HasField("welcome"):
            say(event="welcome")
        for result in response.results:
            say(event="result", status=result.status)
        for batch in response.batches:
            say_batch(batch)
            if settle and sys.stdin.readline():
                done = record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_ACK)
                requests.put(consumer_pb2.ConsumeRequest(settlements=[done]))


def fetch(stub: consumer_pb2_grpc.ConsumerServiceStub, session: bytes) -> None:
    request = consumer_pb2.FetchRequest(subscription="orders", session=session, seq=1 if session else 0, wait_ms=60_000)
    say(event="fetching")
    for batch in stub.Fetch(request).batches:
        say_batch(batch)


def main(mode: str, target: str) -> None:
    with grpc.insecure_channel(target, options=OPTIONS) as channel:
        stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
        if mode in ("consume", "settle"):
            consume(stub, settle=mode == "settle")
        elif mode in ("open", "wait"):
            opened = stub.Open(consumer_pb2.OpenRequest(subscription="orders"))
            fetch(stub, next(opened).welcome.session)
        else:
            fetch(stub, b"")
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
