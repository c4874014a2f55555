"""A lane, and a source of one lane, on a fake of the client library."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import _pulsar

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.pulsar.joining import JoinedLane
from sidecar.brokers.pulsar.lane import PulsarLane
from sidecar.brokers.pulsar.options import PulsarOptions, SubscriptionType
from sidecar.brokers.pulsar.positions import pack
from sidecar.brokers.pulsar.source import PulsarSource
from sidecar.model.errors import BrokerError, Unavailable
from sidecar.model.records import Lane

LANE = Lane("orders", 0)


@dataclass(frozen=True)
class MessageId:
    """An id of the library."""

    ledger: int
    entry: int
    index: int = -1

    def ledger_id(self) -> int:
        return self.ledger

    def entry_id(self) -> int:
        return self.entry

    def batch_index(self) -> int:
        return self.index


@dataclass(frozen=True)
class SentMessage:
    """A message of the library, at an id."""

    id: MessageId

    def message_id(self) -> MessageId:
        return self.id

    def partition_key(self) -> str:
        return ""

    def properties(self) -> dict[str, str]:
        return {}

    def data(self) -> bytes:
        return b"%d" % self.id.entry

    def event_timestamp(self) -> int:
        return 0

    def publish_timestamp(self) -> int:
        return 1

    def redelivery_count(self) -> int:
        return 0


@dataclass
class FakeConsumer:
    """Receives what `deliver` is given, and records acks, seeks and closing, in order."""

    result: _pulsar.Result = _pulsar.Result.Ok
    calls: list[object] = field(default_factory=list)
    _waiting: list[SentMessage] = field(default_factory=list)
    _asked: Callable[[_pulsar.Result, Any], None] | None = None

    def deliver(self, *ids: MessageId) -> None:
        self._waiting += map(SentMessage, ids)
        if self._asked is not None:
            asked, self._asked = self._asked, None
            self.receive_async(asked)

    def receive_async(self, callback: Callable[[_pulsar.Result, Any], None]) -> None:
        if self._waiting:
            callback(_pulsar.Result.Ok, self._waiting.pop(0))
        else:
            self._asked = callback

    def batch_receive(self) -> list[SentMessage]:
        taken, self._waiting = self._waiting, []
        return taken

    def acknowledge_async(self, message: MessageId, callback: Callable[[_pulsar.Result], None]) -> None:
        self.calls.append(message)
        callback(self.result)

    def acknowledge_cumulative_async(self, message: MessageId, callback: Callable[[_pulsar.Result], None]) -> None:
        self.calls.append(("cumulative", message))
        callback(self.result)

    def seek(self, to: Any) -> None:
        self.calls.append("seek")

    def close(self) -> None:
        self.calls.append("close")

    def is_connected(self) -> bool:
        return True

    def get_last_message_id(self) -> MessageId:
        return MessageId(4, 9)


class FakeClient:
    """Makes calls at once. While `free` is not set, calls other than receiving wait; while it is `away`, they fail."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.free.set()
        self.away = False

    async def run(self, doing: str, call: Callable[..., Any], *arguments: Any) -> Any:
        if not doing.startswith("receive"):
            await self.free.wait()
        if self.away:
            raise Unavailable(f"cannot {doing}")
        return call(*arguments)

    async def close_one(self, one: Any) -> None:
        one.close()


@dataclass
class Bench:
    """A lane, and the fakes below it."""

    consumer: FakeConsumer
    client: Any
    lane: PulsarLane
    woken: asyncio.Event

    async def receive(self, *ids: MessageId) -> list[int]:
        """Delivers messages and takes them. Returns their positions."""
        self.consumer.deliver(*ids)
        await self.wait_until(lambda: self.lane.ready > 0)
        chunk = self.lane.take(100, 1 << 20, at_least=1, possibly_processed=False)
        assert chunk is not None
        return list(chunk.positions)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.woken.clear()
                await self.woken.wait()


class FakeJoiner:
    """Joins the one lane with these consumers in turn, and then always with the last; raises those that are errors."""

    def __init__(self, *consumers: FakeConsumer | BrokerError) -> None:
        self.consumer_name = "me"
        self.joins = 0
        self._consumers = [*consumers]

    async def lanes(self) -> dict[Lane, str]:
        return {LANE: "orders"}

    async def join(self, lanes: Collection[tuple[Lane, str]]) -> list[JoinedLane]:
        return [self._join(lane, name) for lane, name in lanes]

    def _join(self, lane: Lane, name: str) -> JoinedLane:
        self.joins += 1
        consumer = self._consumers.pop(0) if len(self._consumers) > 1 else self._consumers[0]
        if isinstance(consumer, BrokerError):
            raise consumer
        return JoinedLane(lane, name, consumer, pack(4, 0), first=False, ends=LaneEnd(pack(4, 0), pack(4, 0)))


def source_on(joiner: FakeJoiner, *, exclusive: bool = False, **broker: Any) -> PulsarSource:
    """A source of one lane, which is joined by the first check for lanes. Needs a running loop, and `close` at the
    end."""
    kind = SubscriptionType.EXCLUSIVE if exclusive else SubscriptionType.SHARED
    options = PulsarOptions(url="pulsar://nowhere", subscription_type=kind)
    settings = {"options": options, "client": FakeClient(), "admin": None, "traits": options.traits, **broker}
    source: Any = PulsarSource(
        SimpleNamespace(**settings, exit=lambda source: None),  # type: ignore[arg-type]
        SourceSpec(group="group", topics=("orders",)),
    )
    source._discovery = source._joiner = joiner
    return source  # type: ignore[no-any-return]


def bench(*, exclusive: bool = False, had_before: int = 0) -> Bench:
    """Needs a running loop, and `lane.close()` at the end."""
    consumer, client, woken = FakeConsumer(), FakeClient(), asyncio.Event()
    settings: Any = {"start": 0, "had_before": had_before, "exclusive": exclusive}
    lane = PulsarLane(LANE, "orders", consumer, client, wake=woken.set, **settings)  # type: ignore[arg-type]
    return Bench(consumer, client, lane, woken)
