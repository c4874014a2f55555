"""A fake sidecar with canned responses, on a real socket, for the commands that call one."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from offramp.v1 import admin_pb2 as admin
from offramp.v1 import admin_pb2_grpc, consumer_pb2_grpc, publish_pb2_grpc
from offramp.v1 import consumer_pb2 as consumer
from offramp.v1 import publish_pb2 as publish
from offramp.v1 import record_pb2 as record


class FakeAdmin(admin_pb2_grpc.AdminServiceServicer):
    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.status = admin.Status()
        self.dead_letters: list[admin.DeadLetter] = []
        self.error: tuple[grpc.StatusCode, str] | None = None
        self.watched: queue.SimpleQueue[admin.Status] = queue.SimpleQueue()

    def _take(self, request: Any, context: grpc.ServicerContext) -> None:
        self.requests.append(request)
        if self.error is not None:
            context.abort(*self.error)

    def GetStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._take(request, context)
        return admin.GetStatusResponse(status=self.status)

    def WatchStatus(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        self._take(request, context)
        while context.is_active():
            try:
                yield admin.WatchStatusResponse(status=self.watched.get(timeout=0.05))
            except queue.Empty:
                continue

    def Pause(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._take(request, context)
        return admin.PauseResponse()

    def Resume(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._take(request, context)
        return admin.ResumeResponse()

    def Seek(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._take(request, context)
        return admin.SeekResponse(lanes=[admin.SoughtLane(topic="orders", lane=1, position=7)])

    def ListDeadLetters(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        self._take(request, context)
        first = int(request.page or 0)
        for letter in self.dead_letters[first : first + request.limit]:
            if request.id in ("", letter.id):
                more = first + request.limit < len(self.dead_letters)
                page = str(first + request.limit) if more else ""
                yield admin.ListDeadLettersResponse(dead_letters=[letter], next_page=page)

    def Redrive(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        self._take(request, context)
        known = {letter.id for letter in self.dead_letters if request.ids or request.again or not letter.redriven}
        chosen = known & set(request.ids) if request.ids else known
        yield admin.RedriveResponse()
        yield admin.RedriveResponse(redriven=len(chosen), skipped=len(self.dead_letters) - len(known))

    def DeleteDeadLetters(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        self._take(request, context)
        known = {letter.id for letter in self.dead_letters}
        yield admin.DeleteDeadLettersResponse(deleted=len(known & set(request.ids) if request.ids else known))

    def DeleteGroup(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._take(request, context)
        return admin.DeleteGroupResponse()


class FakePublish(publish_pb2_grpc.PublishServiceServicer):
    def __init__(self) -> None:
        self.requests: list[publish.PublishRequest] = []
        self.error_at: int | None = None
        #: by the index of a message: a result that says that it is not published
        self.not_published: dict[int, publish.Published] = {}

    @property
    def messages(self) -> list[publish.Message]:
        return [message for request in self.requests for message in request.messages]

    def Publish(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.error_at == len(self.requests):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the disk is full")
        first = len(self.messages)
        self.requests.append(request)
        done = publish.PUBLISH_STATUS_PUBLISHED
        places = [
            self.not_published.get(n, publish.Published(lane=(first + n) % 2, position=first + n, status=done))
            for n in range(len(request.messages))
        ]
        return publish.PublishResponse(published=places)


class FakeConsumer(consumer_pb2_grpc.ConsumerServiceServicer):
    """Delivers `batches` one by one and remembers the outcome of each record."""

    def __init__(self) -> None:
        self.batches: queue.SimpleQueue[record.Batch] = queue.SimpleQueue()
        self.leased: dict[bytes, record.Batch] = {}
        self.settlements: list[record.Settlement] = []
        self.opened: list[consumer.OpenRequest] = []
        self.closed = threading.Event()
        self.status = record.SETTLE_STATUS_SETTLED
        self.fetched = threading.Event()
        self.notices: list[consumer.Notice] = []

    def add(self, *values: bytes | None, topic: str = "orders") -> None:
        number = self.batches.qsize()
        records = [record.Record(value=v, lane=1, position=100 * number + n) for n, v in enumerate(values)]
        self.batches.put(record.Batch(lease=b"lease%d" % number, topic=topic, records=records))

    def outcomes(self) -> list[record.Outcome]:
        """The outcome of each record, in the order of the batches."""
        out: list[record.Outcome] = []
        for settlement in self.settlements:
            fates = [settlement.outcome] * len(self.leased[settlement.lease].records)
            for part in settlement.parts:
                fates[part.first : part.first + part.count] = [part.outcome] * part.count
            out += fates
        return out

    def Open(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        if request.subscription != "orders":
            context.abort(
                grpc.StatusCode.NOT_FOUND, f'there is no subscription "{request.subscription}"; there are: orders'
            )
        self.opened.append(request)
        ended = threading.Event()
        context.add_callback(ended.set)
        yield consumer.OpenResponse(welcome=consumer.Welcome(session=b"session"))
        ended.wait(60)
        self.closed.set()

    def Fetch(self, request: Any, context: Any) -> Any:  # noqa: N802
        results = self._settle(request.settlements)
        self.fetched.set()
        try:
            batch = self.batches.get(timeout=request.wait_ms / 1000)
        except queue.Empty:
            return consumer.FetchResponse(results=results, notices=self.notices)
        self.leased[batch.lease] = batch
        return consumer.FetchResponse(results=results, batches=[batch], notices=self.notices)

    def Settle(self, request: Any, context: Any) -> Any:  # noqa: N802
        return consumer.SettleResponse(results=self._settle(request.settlements))

    def _settle(self, settlements: Any) -> list[record.SettleResult]:
        self.settlements.extend(settlements)
        return [record.SettleResult(lease=s.lease, status=self.status) for s in settlements]


class FakeSidecar:
    def __init__(self, address: str) -> None:
        self.address = address
        self.admin = FakeAdmin()
        self.publish = FakePublish()
        self.consumer = FakeConsumer()


@contextmanager
def serve(folder: Path) -> Iterator[FakeSidecar]:
    """A fake sidecar on a unix socket in the folder."""
    fake = FakeSidecar(f"unix:{folder / 's.sock'}")
    server = grpc.server(ThreadPoolExecutor(8))
    admin_pb2_grpc.add_AdminServiceServicer_to_server(fake.admin, server)
    publish_pb2_grpc.add_PublishServiceServicer_to_server(fake.publish, server)
    consumer_pb2_grpc.add_ConsumerServiceServicer_to_server(fake.consumer, server)
    server.add_insecure_port(fake.address)
    server.start()
    try:
        yield fake
    finally:
        server.stop(None).wait()
