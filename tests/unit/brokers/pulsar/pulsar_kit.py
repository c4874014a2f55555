"""One lane of Pulsar on a library that does what a test says."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import _pulsar

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.pulsar.lane import PulsarLane
from sidecar.brokers.pulsar.opening import Joined
from sidecar.brokers.pulsar.options import PulsarOptions, SubscriptionType
from sidecar.brokers.pulsar.positions import pack
from sidecar.brokers.pulsar.source import PulsarSource
from sidecar.model.errors import BrokerError, Unavailable
from sidecar.model.records import Lane

LANE = Lane("orders", 0)


@dataclass(frozen=True)
class MessageId:
    """As the library has it."""

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
    """As the library gives it."""

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
    """Receives what `sends` is given, and remembers what was acked, closed and sought, in order."""

    result: _pulsar.Result = _pulsar.Result.Ok
    told: list[object] = field(default_factory=list)
    _waiting: list[SentMessage] = field(default_factory=list)
    _asked: Callable[[_pulsar.Result, Any], None] | None = None

    def sends(self, *ids: MessageId) -> None:
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
        self.told.append(message)
        callback(self.result)

    def acknowledge_cumulative_async(self, message: MessageId, callback: Callable[[_pulsar.Result], None]) -> None:
        self.told.append(("all before", message))
        callback(self.result)

    def seek(self, to: Any) -> None:
        self.told.append("sought")

    def close(self) -> None:
        self.told.append("closed")

    def is_connected(self) -> bool:
        return True


class FakeLibrary:
    """Runs calls at once, but while it is not `free` only those that receive; while it is `away`, others fail."""

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

    async def leave(self, one: Any) -> None:
        one.close()


@dataclass
class Bench:
    """A lane, and what it stands on."""

    consumer: FakeConsumer
    library: Any
    lane: PulsarLane
    woken: asyncio.Event

    async def arrives(self, *ids: MessageId) -> list[int]:
        """The positions of records that arrive, once they can be taken."""
        self.consumer.sends(*ids)
        await self.is_(lambda: self.lane.ready > 0)
        chunk = self.lane.take(100, 1 << 20, at_least=1, possibly_processed=False)
        assert chunk is not None
        return list(chunk.positions)

    async def is_(self, so: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not so():
                self.woken.clear()
                await self.woken.wait()


class FakeOpening:
    """Joins the one lane by these consumers in turn, by the last one for ever; raises those that are errors."""

    def __init__(self, *consumers: FakeConsumer | BrokerError) -> None:
        self.who = "me"
        self.joins = 0
        self._consumers = [*consumers]

    async def lanes(self) -> dict[Lane, str]:
        return {LANE: "orders"}

    async def join(self, lanes: Collection[tuple[Lane, str]]) -> list[Joined]:
        return [self._join(lane, name) for lane, name in lanes]

    def _join(self, lane: Lane, name: str) -> Joined:
        self.joins += 1
        consumer = self._consumers.pop(0) if len(self._consumers) > 1 else self._consumers[0]
        if isinstance(consumer, BrokerError):
            raise consumer
        return Joined(lane, name, consumer, pack(4, 0), first=False, ends=LaneEnd(pack(4, 0), pack(4, 0)))


def source_on(opening: FakeOpening, *, exclusive: bool = False, **broker: Any) -> PulsarSource:
    """Of one lane, which is joined when it is asked to look for lanes. Within a loop; `close` ends it."""
    kind = SubscriptionType.EXCLUSIVE if exclusive else SubscriptionType.SHARED
    options = PulsarOptions(url="pulsar://nowhere", subscription_type=kind)
    settings = {"options": options, "library": FakeLibrary(), "admin": None, "traits": options.traits, **broker}
    source: Any = PulsarSource(
        SimpleNamespace(**settings, exit=lambda source: None),  # type: ignore[arg-type]
        SourceSpec(group="group", topics=("orders",)),
    )
    source._discovery = source._opening = opening
    return source  # type: ignore[no-any-return]


def bench(*, exclusive: bool = False, had_before: int = 0) -> Bench:
    """Within a loop. `lane.close()` ends it."""
    consumer, library, woken = FakeConsumer(), FakeLibrary(), asyncio.Event()
    settings: Any = {"start": 0, "had_before": had_before, "exclusive": exclusive}
    lane = PulsarLane(LANE, "orders", consumer, library, wake=woken.set, **settings)  # type: ignore[arg-type]
    return Bench(consumer, library, lane, woken)
