"""Large requests are applied in pieces."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from offramp.v1 import record_pb2 as pb
from sidecar.server.grpc.consumer import settling
from sidecar.server.grpc.entries import MAX_ENTRIES
from sidecar.server.subscriptions import SubscriptionRegistry
from tests.event_loop import on_event_loop

#: what is applied in one turn of the loop: some milliseconds
PIECE = 1_000


@pytest.mark.parametrize(
    ("apply", "message"), [(settling.settle, pb.Settlement(lease=b"x")), (settling.extend, pb.Extension(lease=b"x"))]
)
@on_event_loop
async def test_others_have_their_turn_while_as_many_as_are_allowed_are_applied(
    apply: Callable[..., Awaitable[list[Any]]], message: pb.Settlement | pb.Extension
) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(other())
    results = await apply(SubscriptionRegistry(bytes(8), {}), [message] * MAX_ENTRIES)
    others.cancel()
    assert len(results) == MAX_ENTRIES
    assert turns >= MAX_ENTRIES // PIECE
