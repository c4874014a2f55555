"""kill -9 of the sidecar in the middle of a load, again and again: nothing that was published is lost."""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc

from offramp.v1 import consumer_pb2, consumer_pb2_grpc, publish_pb2, publish_pb2_grpc, record_pb2
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually

LONG = bool(os.environ.get("OFFRAMP_TEST_LONG"))
KILLS = 40 if LONG else 4
WORKERS = 3
SETTINGS = {"topics": ["orders"], "batch": {"records": 20}, "commit_every": "20ms", "retry": {"first": "10ms"}}


class Load:
    """A publisher and a few workers that only know that the sidecar may go away."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._target = sidecar.target
        self._stop_publishing = threading.Event()
        self._stop_working = threading.Event()
        #: values that the sidecar said are on disk
        self.published: list[int] = []
        #: how often each value was handled
        self.handled: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._publisher = threading.Thread(target=self._publish)
        self._workers = [threading.Thread(target=self._work, args=(number,)) for number in range(WORKERS)]

    def start(self) -> None:
        for thread in (self._publisher, *self._workers):
            thread.start()

    def stop_publishing(self) -> None:
        self._stop_publishing.set()
        self._publisher.join(WAIT_TIMEOUT)

    def stop(self) -> None:
        self._stop_publishing.set()
        self._stop_working.set()
        for thread in (self._publisher, *self._workers):
            thread.join(WAIT_TIMEOUT)

    def _publish(self) -> None:
        while not self._stop_publishing.is_set():
            values = range(len(self.published), len(self.published) + 50)
            messages = [publish_pb2.Message(value=b"%d" % value) for value in values]
            request = publish_pb2.PublishRequest(broker="local", topic="orders", messages=messages)
            try:
                with grpc.insecure_channel(self._target) as channel:
                    publish_pb2_grpc.PublishServiceStub(channel).Publish(request, timeout=5.0)
                self.published.extend(values)
            except grpc.RpcError:
                # It may have been taken or not: it is published again, and some values come twice.
                time.sleep(0.01)

    def _work(self, number: int) -> None:
        chance = random.Random(number)
        while not self._stop_working.is_set():
            try:
                with grpc.insecure_channel(self._target) as channel:
                    self._consume(consumer_pb2_grpc.ConsumerServiceStub(channel), chance)
            except grpc.RpcError:
                time.sleep(0.01)

    def _consume(self, stub: consumer_pb2_grpc.ConsumerServiceStub, chance: random.Random) -> None:
        done: list[record_pb2.Settlement] = []
        # The session lives as long as this name does.
        opened = stub.Open(consumer_pb2.OpenRequest(subscription="orders"))
        session = next(opened).welcome.session
        seq = 0
        while not self._stop_working.is_set():
            seq += 1
            request = consumer_pb2.FetchRequest(session=session, seq=seq, settlements=done, wait_ms=50)
            done = list(self._handle(stub.Fetch(request, timeout=5.0), chance))

    def _handle(self, response: consumer_pb2.FetchResponse, chance: random.Random) -> Iterator[record_pb2.Settlement]:
        for batch in response.batches:
            if chance.random() < 0.05:
                yield record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_NACK)
                continue
            with self._lock:
                self.handled.update(int(record.value) for record in batch.records)
            yield record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_ACK)


def test_killing_the_sidecar_in_the_middle_of_a_load_loses_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    with Sidecar(tmp_path, subscriptions={"orders": SETTINGS}) as sidecar:
        load = Load(sidecar)
        load.start()
        try:
            for _ in range(KILLS):
                before = len(load.published)
                eventually(lambda before=before: len(load.published) > before, "the load goes on")
                time.sleep(chance.uniform(0.0, 0.3))
                sidecar.restart()
            load.stop_publishing()

            def settled() -> bool:
                lanes = sidecar.status().lanes
                return bool(lanes) and all(lane.lag == 0 for lane in lanes) and not sidecar.status().leases

            eventually(settled, "everything is settled", timeout=4 * WAIT_TIMEOUT)
        finally:
            load.stop()
        lost = set(load.published) - set(load.handled)
        assert not lost, f"{len(lost)} of {len(load.published)} were lost, such as {sorted(lost)[:10]}"
        assert len(load.published) >= 50 * KILLS
