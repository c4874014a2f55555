"""A reader of ranges, as thin as the protocol allows, on a sidecar within the test's own loop."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from offramp.v1 import log_pb2, log_pb2_grpc
from sidecar.brokers.local import LocalBroker
from sidecar.settings import SubscriptionMode
from tests.unit.server.grpc.service_kit import AsyncTest, Kit, Test, serving, within

TOPIC = "orders"
RANGES = SubscriptionMode.RANGES


class Reader:
    """A reader of ranges, as thin as the protocol allows. Positions are by lane of one topic."""

    def __init__(self, channel: grpc.aio.Channel, subscription: str = "orders") -> None:
        self.stub = log_pb2_grpc.LogServiceStub(channel)
        self.subscription = subscription
        self.token = 0

    async def attach(self, name: str = "query") -> dict[int, int]:
        answer = await self.stub.Attach(log_pb2.AttachRequest(subscription=self.subscription, reader=name))
        self.token = answer.token
        return by_lane(answer.committed)

    async def resolve_start(self, **start: Any) -> dict[int, int]:
        request = log_pb2.ResolveStartRequest(subscription=self.subscription, token=self.token, **start)
        return by_lane((await self.stub.ResolveStart(request)).positions)

    async def plan(self, start: Mapping[int, int], ceiling: Mapping[int, int] | None = None, **limits: int) -> Any:
        request = log_pb2.PlanRequest(
            subscription=self.subscription,
            token=self.token,
            start=positions(start),
            ceiling=positions(ceiling or {}),
            **limits,
        )
        return await self.stub.Plan(request)

    async def until(self, start: Mapping[int, int], **more: Any) -> dict[int, int]:
        return by_lane((await self.plan(start, **more)).until)

    async def commit(self, at: Mapping[int, int]) -> dict[int, int]:
        request = log_pb2.CommitUpToRequest(subscription=self.subscription, token=self.token, positions=positions(at))
        return by_lane((await self.stub.CommitUpTo(request)).committed)

    async def locate(self, *topics: str, **at: Any) -> Any:
        return await self.stub.Locate(log_pb2.LocateRequest(subscription=self.subscription, topics=topics, **at))

    def range(self, start: int, until: int, *, lane: int = 0, topic: str = TOPIC, **more: Any) -> Any:
        return self.stub.ReadRange(
            log_pb2.ReadRangeRequest(
                subscription=self.subscription, topic=topic, lane=lane, start=start, until=until, **more
            )
        )

    async def values(self, start: int, until: int, **more: Any) -> list[bytes]:
        return [record.value async for answer in self.range(start, until, **more) for record in answer.records]


def positions(at: Mapping[int, int]) -> list[log_pb2.LanePosition]:
    return [log_pb2.LanePosition(topic=TOPIC, lane=lane, position=position) for lane, position in at.items()]


def by_lane(at: Any) -> dict[int, int]:
    assert {one.topic for one in at} <= {TOPIC}
    return {one.lane: one.position for one in at}


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@asynccontextmanager
async def ranged(folder: Path, **more: Any) -> AsyncIterator[tuple[Kit, Reader]]:
    async with serving(folder, mode=RANGES, **more) as kit:
        yield kit, Reader(kit.channel)


def with_reader(**more: Any) -> Callable[[AsyncTest], Test]:
    """Decorates an async test that takes a `Kit` and a `Reader`."""
    return within(2, lambda folder: ranged(folder, **more))


def local(kit: Kit) -> LocalBroker:
    broker = kit.sidecar._connections["local"].broker
    assert isinstance(broker, LocalBroker)
    return broker


@asynccontextmanager
async def refused(status: grpc.StatusCode, *words: str) -> AsyncIterator[None]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield
    assert caught.value.code() is status, caught.value.details()
    for word in words:
        assert word in (caught.value.details() or "")


INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
UNMET, ABORTED = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED
OUT_OF_RANGE, EXHAUSTED = grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.RESOURCE_EXHAUSTED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
