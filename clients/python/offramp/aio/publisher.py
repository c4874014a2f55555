"""Publishing to a broker through the sidecar, for asyncio."""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self, Unpack

import grpc.aio

from offramp.channel import Access, AccessOptions
from offramp.publisher import (
    GET_LIMITS,
    PUBLISH,
    Data,
    Headers,
    Message,
    Place,
    PublishTarget,
    RequestLimits,
)
from offramp.v1 import publish_pb2 as pb


class Publisher:
    """Publishes to the broker of a `subscription`, or to a `broker` by its name. Any number of tasks may use it.

    Every call waits for the sidecar if it is not there, and returns when the broker has the messages durably. It raises
    `Refused` for what can never work, and `Unavailable` if it did not work within `timeout` seconds: then some messages
    may have been published, and publishing again may duplicate them. For the other options see `offramp.channel`.
    """

    def __init__(
        self,
        *,
        subscription: str | None = None,
        broker: str | None = None,
        timeout: float = 30.0,
        **access: Unpack[AccessOptions],
    ) -> None:
        self._target = PublishTarget(subscription, broker)
        self._timeout = timeout
        self._access = Access(**access)
        self._channel = self._access.open_aio()
        self._limits = RequestLimits(self._access.target)
        self._publish = self._channel.unary_unary(
            PUBLISH, pb.PublishRequest.SerializeToString, pb.PublishResponse.FromString
        )
        self._get_limits = self._channel.unary_unary(
            GET_LIMITS, pb.GetLimitsRequest.SerializeToString, pb.GetLimitsResponse.FromString
        )

    async def publish(
        self, topic: str, value: Data, *, key: Data = None, headers: Headers = (), lane: int | None = None
    ) -> Place:
        """Publish one message. Returns its lane and position."""
        places = await self.publish_many(topic, [Message(value, key, headers, lane)])
        return places[0]

    async def publish_many(self, topic: str, messages: Iterable[Message]) -> list[Place]:
        """Publish messages to one topic in one call. Returns their lanes and positions, in their order. Raises
        `PartlyPublished` if only some are published."""
        request = self._target.request(topic, messages)
        ends = time.monotonic() + self._timeout
        metadata = self._access.metadata()
        try:
            if self._limits.needed(request):
                self._limits.known = await self._get_limits(
                    self._target.limits_request(), timeout=self._timeout, wait_for_ready=True, metadata=metadata
                )
            self._limits.check(request)
            left = max(ends - time.monotonic(), 0.001)
            response = await self._publish(request, timeout=left, wait_for_ready=True, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise self._limits.failure(error) from error
        return self._limits.places(response)

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
