"""A sidecar within the test's own loop, and a client of it that is as thin as the protocol allows."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import grpc.aio
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from offramp.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    consumer_pb2,
    consumer_pb2_grpc,
    publish_pb2,
    publish_pb2_grpc,
    record_pb2,
)
from sidecar.brokers.local import LocalOptions
from sidecar.server.sidecar import Sidecar
from sidecar.settings import (
    BatchSettings,
    BrokerSettings,
    DrainSettings,
    HttpSettings,
    ListenSettings,
    Seconds,
    Settings,
    SubscriptionSettings,
)

T = TypeVar("T")
AsyncTest = Callable[..., Coroutine[Any, Any, None]]
Test = Callable[..., None]

#: seconds before a test that waits has failed
WAIT_TIMEOUT = 60.0
#: batches of one record
ONE = BatchSettings(records=1)

ACK, NACK, RELEASE = record_pb2.OUTCOME_ACK, record_pb2.OUTCOME_NACK, record_pb2.OUTCOME_RELEASE
SETTLED, STALE = record_pb2.SETTLE_STATUS_SETTLED, record_pb2.SETTLE_STATUS_STALE
UNKNOWN = record_pb2.SETTLE_STATUS_UNKNOWN


def run(body: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(WAIT_TIMEOUT * 2):
            return await body

    return asyncio.run(bounded())


def in_loop(test: AsyncTest) -> Test:
    """Decorates an async test, which then runs in an event loop of its own, for a bounded time."""

    @wraps(test)
    def call(**arguments: Any) -> None:
        run(test(**arguments))

    return call


def within(
    count: int, enter: Callable[[Path], AbstractAsyncContextManager[Sequence[Any]]]
) -> Callable[[AsyncTest], Test]:
    """Decorates an async test, whose first `count` arguments are then what this context yields for its `tmp_path`."""

    def decorate(test: AsyncTest) -> Test:
        @wraps(test)
        def call(tmp_path: Path, **arguments: Any) -> None:
            async def body() -> None:
                async with enter(tmp_path) as given:
                    await test(*given, **arguments)

            run(body())

        # From the signature pytest learns what to pass.
        others = list(inspect.signature(test).parameters.values())[count:]
        folder = inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        call.__dict__["__signature__"] = inspect.Signature([folder, *others])
        return call

    return decorate


def settlement(batch: record_pb2.Batch, outcome: Any = ACK, **more: Any) -> record_pb2.Settlement:
    return record_pb2.Settlement(lease=batch.lease, outcome=outcome, **more)


def error_info(code: grpc.StatusCode, text: str, metadata: Iterable[tuple[str, str | bytes]]) -> ErrorInfo:
    """What a status says to programs, read with gRPC's own types. Fails if the sidecar has sent none."""
    details = [value for name, value in metadata if name == "grpc-status-details-bin"]
    assert len(details) == 1, f"{code}: {text}: without details"
    status = Status.FromString(bytes(details[0]))
    assert (status.code, status.message) == (code.value[0], text)
    info = ErrorInfo()
    (detail,) = status.details
    assert detail.Unpack(info)
    assert info.domain == "offramp.v1"
    assert info.metadata["retryable"] in ("true", "false")
    return info


async def error_of(call: Any) -> ErrorInfo:
    """The same of a call that has ended with an error."""
    return error_info(await call.code(), await call.details(), await call.trailing_metadata())


async def ended(call: Any) -> grpc.StatusCode:
    """The status of a stream of responses, once they are all read."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        with suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
        code: grpc.StatusCode = await call.code()
        if code not in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED):
            await error_of(call)
        return code


class Stream:
    """One Consume call. Reads all responses at once and keeps them for the test."""

    def __init__(self, stub: consumer_pb2_grpc.ConsumerServiceStub) -> None:
        self.call = stub.Consume()
        self.welcome = consumer_pb2.Welcome()
        self._batches: asyncio.Queue[record_pb2.Batch] = asyncio.Queue()
        self._results: asyncio.Queue[record_pb2.SettleResult] = asyncio.Queue()
        self._extended: asyncio.Queue[record_pb2.ExtendResult] = asyncio.Queue()
        self._notices: asyncio.Queue[consumer_pb2.Notice] = asyncio.Queue()
        self.responses = 0
        self._welcomed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def hello(self, subscription: str = "orders", *, batches: int = 1, **more: Any) -> None:
        hello = consumer_pb2.Hello(subscription=subscription, credit=consumer_pb2.Credit(batches=batches), **more)
        await self.send(hello=hello)
        async with asyncio.timeout(WAIT_TIMEOUT):
            await self._welcomed.wait()

    async def send(self, **fields: Any) -> None:
        await self.call.write(consumer_pb2.ConsumeRequest(**fields))

    async def settle(self, *settlements: record_pb2.Settlement) -> None:
        await self.send(settlements=settlements)

    async def batch(self) -> record_pb2.Batch:
        return await self._next(self._batches)

    async def result(self) -> record_pb2.SettleResult:
        return await self._next(self._results)

    async def extended(self) -> record_pb2.ExtendResult:
        return await self._next(self._extended)

    async def notice(self) -> consumer_pb2.Notice:
        return await self._next(self._notices)

    async def end(self, *, by_grpc: bool = False) -> grpc.StatusCode:
        """The status with which the stream ends; what gRPC itself says has no reason."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            await self._reader
            code: grpc.StatusCode = await self.call.code()
            if code is not grpc.StatusCode.OK and not by_grpc:
                await error_of(self.call)
            return code

    async def no_batch(self, seconds: float = 0.05) -> None:
        """Fails if a response arrives within this time."""
        try:
            async with asyncio.timeout(seconds):
                batch = await self._batches.get()
        except TimeoutError:
            return
        raise AssertionError(f"a batch arrived: {batch}")

    async def _next(self, queue: "asyncio.Queue[T]") -> T:
        async with asyncio.timeout(WAIT_TIMEOUT):
            return await queue.get()

    async def _read(self) -> None:
        # The status is asked for by `end`.
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            await self._read_all()

    async def _read_all(self) -> None:
        while (response := await self.call.read()) is not grpc.aio.EOF:
            self.responses += 1
            if response.HasField("welcome"):
                assert self.responses == 1
                self.welcome = response.welcome
                self._welcomed.set()
            for queue, items in (
                (self._batches, response.batches),
                (self._results, response.results),
                (self._extended, response.extended),
                (self._notices, response.notices),
            ):
                for item in items:
                    queue.put_nowait(item)


class Kit:
    """The sidecar and the stubs of a channel to it."""

    def __init__(self, sidecar: Sidecar, target: str) -> None:
        self.sidecar = sidecar
        self.target = target
        self.channel = grpc.aio.insecure_channel(target)
        self.consumer = consumer_pb2_grpc.ConsumerServiceStub(self.channel)
        self.publisher = publish_pb2_grpc.PublishServiceStub(self.channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(self.channel)

    async def publish(self, values: Iterable[bytes], topic: str = "orders", lane: int = 0) -> None:
        messages = [publish_pb2.Message(value=value, lane=lane) for value in values]
        await self.publisher.Publish(publish_pb2.PublishRequest(broker="local", topic=topic, messages=messages))

    async def stream(self, subscription: str = "orders", *, batches: int = 1, **hello: Any) -> Stream:
        stream = Stream(self.consumer)
        await stream.hello(subscription, batches=batches, **hello)
        return stream

    async def status(self, subscription: str = "orders") -> admin_pb2.SubscriptionStatus:
        response = await self.admin.GetStatus(admin_pb2.GetStatusRequest(subscription=subscription))
        return response.status.subscriptions[0]

    async def until(self, look: Callable[[admin_pb2.SubscriptionStatus], Any], subscription: str = "orders") -> None:
        """Waits for a status for which this is true."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            while not look(await self.status(subscription)):  # noqa: ASYNC110 - the sidecar does not call back
                await asyncio.sleep(0.002)


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    listen: Mapping[str, Any] | None = None,
    subscriptions: Mapping[str, SubscriptionSettings] | None = None,
    **orders: Any,
) -> AsyncIterator[Kit]:
    """A sidecar with a local broker and, unless told otherwise, one subscription `orders` with these settings."""
    if subscriptions is None:
        subscriptions = {"orders": SubscriptionSettings(topics=("orders",), **orders)}
    listening = ListenSettings(socket=str(folder / "s"), **(listen or {}))
    options = LocalOptions(directory=str(folder / "data"), lanes=1)
    settings = Settings(
        listen=listening,
        http=HttpSettings(address=""),
        drain=DrainSettings(deadline=Seconds(0.2)),
        brokers={"local": BrokerSettings(name="local", type="local", options=options)},
        subscriptions={name: replace(one, name=name) for name, one in subscriptions.items()},
    )
    sidecar = Sidecar(settings)
    try:
        await sidecar.start()
        kit = Kit(sidecar, f"unix:{listening.socket}")
        try:
            yield kit
        finally:
            await kit.channel.close()
            await sidecar.stop(settings.drain.deadline)
    except BaseException:
        await sidecar.close()
        raise


def with_sidecar(**settings: Any) -> Callable[[AsyncTest], Test]:
    """Decorates an async test that takes a `Kit`: see `serving`."""

    @asynccontextmanager
    async def enter(folder: Path) -> AsyncIterator[tuple[Kit]]:
        async with serving(folder, **settings) as kit:
            yield (kit,)

    return within(1, enter)
