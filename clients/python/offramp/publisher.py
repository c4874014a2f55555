"""Sending messages to a broker through the sidecar, for code that blocks."""

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Self, Unpack

import grpc

from offramp import forking
from offramp.channel import Access, AccessOptions
from offramp.messages import METHOD, Data, Headers, Message, Place, Target, publish_error, read_places
from offramp.v1 import publish_pb2 as pb


class Publisher:
    """Publishes to the broker of a `subscription`, or to a `broker` by its name. Any number of threads may use it.

    Every call waits for the sidecar if it is not there, and returns when the broker has the messages durably. It
    raises `Refused` for what can never work, and `Unavailable` if it did not work within `timeout` seconds:
    then some messages may have been published, and publishing again may duplicate them. Open it after a fork. For the
    other options see `offramp.channel`.
    """

    def __init__(
        self,
        *,
        subscription: str | None = None,
        broker: str | None = None,
        timeout: float = 30.0,
        **access: Unpack[AccessOptions],
    ) -> None:
        self._to = Target(subscription, broker)
        self._timeout = timeout
        self._access = Access(**access)
        self._pid = os.getpid()
        self._channel = self._access.open()
        self._publish = self._channel.unary_unary(
            METHOD, pb.PublishRequest.SerializeToString, pb.PublishResponse.FromString
        )

    def publish(
        self, topic: str, value: Data, *, key: Data = None, headers: Headers = (), lane: int | None = None
    ) -> Place:
        """Publish one message, and say where it went."""
        return self.publish_many(topic, [Message(value, key, headers, lane)])[0]

    def publish_many(self, topic: str, messages: Iterable[Message]) -> list[Place]:
        """Publish messages to one topic in one call, and say where they went, in their order."""
        forking.check(self._pid)
        try:
            response = self._publish(self._to.request(topic, messages), timeout=self._timeout, wait_for_ready=True)
        except grpc.RpcError as error:
            raise publish_error(error, self._access.target) from error
        return read_places(response)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
