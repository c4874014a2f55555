"""Applies the settlements and extensions of a request: in pieces, so that others need not wait for a large one."""

import asyncio
from collections.abc import Sequence

from offramp.v1 import record_pb2 as pb
from sidecar.model.records import Extended, Settlement, SettleResult, SettleStatus
from sidecar.server.grpc.requests import RefusedSettlement, read_settlement
from sidecar.server.subscriptions import SubscriptionRegistry

#: settlements or extensions that are applied before others have their turn: some milliseconds
_PIECE = 1_000


async def settle(registry: SubscriptionRegistry, messages: Sequence[pb.Settlement]) -> list[SettleResult]:
    """Returns the results in order: one that breaks a rule is REFUSED and changes nothing for the others.

    Raises `Forbidden`; then nothing of the piece was applied.
    """
    if len(messages) <= _PIECE:
        return _settle(registry, messages)
    results: list[SettleResult] = []
    for at in range(0, len(messages), _PIECE):
        results += _settle(registry, messages[at : at + _PIECE])
        await asyncio.sleep(0)
    return results


async def extend(registry: SubscriptionRegistry, messages: Sequence[pb.Extension]) -> list[Extended]:
    """Returns the results in order. Raises `Forbidden`."""
    results = []
    for index, message in enumerate(messages, 1):
        results.append(registry.extend(message.lease, message.lease_for_ms / 1_000))
        if index % _PIECE == 0:
            await asyncio.sleep(0)
    return results


def _settle(registry: SubscriptionRegistry, messages: Sequence[pb.Settlement]) -> list[SettleResult]:
    try:
        settlements = [read_settlement(message) for message in messages]
    except RefusedSettlement:
        return _settle_the_others(registry, messages)
    return registry.settle(settlements)


def _settle_the_others(registry: SubscriptionRegistry, messages: Sequence[pb.Settlement]) -> list[SettleResult]:
    """As some of them break a rule."""
    settlements: list[Settlement] = []
    refused: list[tuple[int, SettleResult]] = []
    for index, message in enumerate(messages):
        try:
            settlements.append(read_settlement(message))
        except RefusedSettlement as error:
            registry.count_refused(message.lease)
            result = SettleResult(message.lease, SettleStatus.REFUSED, detail=str(error), reason=error.reason)
            refused.append((index, result))
    results = registry.settle(settlements)
    for index, result in refused:
        results.insert(index, result)
    return results
