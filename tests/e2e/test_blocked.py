"""A client that does nothing at all while it works, as a PHP process does: it does not even answer pings."""

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

from offramp.v1 import consumer_pb2, record_pb2
from tests.e2e.harness import Sidecar, Worker
from tests.security.bare import BareClient

LONG = bool(os.environ.get("OFFRAMP_TEST_LONG"))
#: seconds; gRPC gives an answer to a ping one minute
BLOCKED = 100.0 if LONG else 1.0


def test_the_sidecar_never_asks_a_busy_client_for_a_sign_of_life(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar, socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(sidecar.socket))
        # Windows so large that none is ever used up: it does not answer anything, nor grant more.
        client = BareClient(connection, 1 << 30, deaf=True)
        call = client.begin("/offramp.v1.ConsumerService/Consume")
        responses = map(consumer_pb2.ConsumeResponse.FromString, client.messages(call))

        def say(**request: Any) -> None:
            client.say(call, consumer_pb2.ConsumeRequest(**request).SerializeToString())

        sidecar.publish("orders", [b"1"])
        say(hello=consumer_pb2.Hello(subscription="orders", credit=consumer_pb2.Credit(batches=1)))
        batch = next(batch for response in responses for batch in response.batches)
        # Much data from the client is what makes gRPC measure the line, which it does by pings.
        for _ in range(20):
            say(settlements=[record_pb2.Settlement(lease=bytes(16), outcome=record_pb2.OUTCOME_ACK)] * 100)
        time.sleep(BLOCKED)
        say(settlements=[record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_ACK)])
        result = next(result for response in responses for result in response.results if result.lease == batch.lease)
        assert result.status == record_pb2.SETTLE_STATUS_SETTLED
        assert client.pings == 0


def test_a_worker_process_that_was_stopped_finds_its_connection_alive(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar, Worker(sidecar, "settle") as worker:
        sidecar.publish("orders", [b"1"])
        worker.batch()
        worker.signal(signal.SIGSTOP)
        sidecar.publish("orders", [b"2"])
        time.sleep(BLOCKED)
        assert sidecar.status().leases == 1
        worker.signal(signal.SIGCONT)
        worker.tell()
        assert worker.event("result")["status"] == record_pb2.SETTLE_STATUS_SETTLED
        assert worker.event("batch")["values"] == ["2"]
