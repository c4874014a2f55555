"""Joining a lane: where the group is in it, and a consumer that goes on from there."""

import asyncio
import os
import socket
from collections.abc import Collection
from typing import Any, NamedTuple

import pulsar

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.pulsar import positions
from sidecar.brokers.pulsar.admin import Admin, Standing
from sidecar.brokers.pulsar.firsts import Firsts
from sidecar.brokers.pulsar.lane import receive_policy
from sidecar.brokers.pulsar.library import Library
from sidecar.brokers.pulsar.options import PulsarOptions, SubscriptionType
from sidecar.model.errors import BrokerError, NotFound
from sidecar.model.records import Lane, Start

_TYPES = {
    SubscriptionType.EXCLUSIVE: pulsar.ConsumerType.Exclusive,
    SubscriptionType.FAILOVER: pulsar.ConsumerType.Failover,
    SubscriptionType.SHARED: pulsar.ConsumerType.Shared,
    SubscriptionType.KEY_SHARED: pulsar.ConsumerType.KeyShared,
}


class Joined(NamedTuple):
    lane: Lane
    name: str
    consumer: Any
    #: where the group was, 0 if that is not known
    start: int
    #: the group was never here
    first: bool
    #: as far as it is known
    ends: LaneEnd | None
    #: the broker has acks for all before the start
    acked_before: bool = True


class Opening:
    """Makes consumers for one group."""

    def __init__(self, spec: SourceSpec, options: PulsarOptions, library: Library, admin: Admin) -> None:
        self._spec = spec
        self._options = options
        self._library = library
        self._admin = admin
        #: for those who look at the consumers of a subscription
        self.who = f"offramp-{socket.gethostname()}-{os.urandom(3).hex()}"
        #: lanes were joined
        self._begun = False

    async def join(self, lanes: Collection[tuple[Lane, str]]) -> list[Joined]:
        """All of them or none. Raises what the broker says to the first that fails."""
        found = dict(zip(lanes, await asyncio.gather(*(self._standing(name) for _, name in lanes)), strict=True))
        there = {lane for (lane, _), one in found.items() if one is not None and self._spec.group in one.cursors}
        firsts = Firsts(there, self._later({lane.topic for lane, _ in lanes}, there))
        turns = firsts.turns(lane for lane, _ in lanes if self._may_skip(lane))
        # Last: where the group is in them, it has been in all that it began with.
        last = 1 + max(turns.values(), default=-1)
        turns |= {lane: last for lane, _ in lanes if self._is_own(lane)}
        joined: list[Joined] = []
        for turn in sorted({0, *turns.values()}):
            wanted = [(lane, name, one) for (lane, name), one in found.items() if turns.get(lane, 0) == turn]
            done = await asyncio.gather(
                *(self._join(*one, is_first=firsts.is_first(one[0])) for one in wanted), return_exceptions=True
            )
            joined += [one for one in done if isinstance(one, Joined)]
            failed = [one for one in done if isinstance(one, BaseException)]
            if failed:
                await asyncio.gather(*(self._library.leave(one.consumer) for one in joined))
                raise failed[0]
        self._begun = True
        return joined

    def _later(self, topics: Collection[str], there: Collection[Lane]) -> Collection[str]:
        """Topics that came after the group, if it is not in them."""
        if self._begun:
            return topics
        # One that is called by its name may have been there before its name was added.
        return {*topics}.difference(self._spec.topics) if any(map(self._is_own, there)) else ()

    def _may_skip(self, lane: Lane) -> bool:
        """What was there before the group came need not be read."""
        return self._spec.start is Start.LATEST and not self._is_own(lane)

    def _is_own(self, lane: Lane) -> bool:
        return lane.topic in self._spec.own_topics

    async def _standing(self, name: str) -> Standing | None:
        """None: not known. The admin API may be out of reach where the broker is not."""
        try:
            return await self._admin.standing(name)
        except NotFound:
            return Standing(0, (-1, -1), {})
        except BrokerError:
            return None

    async def _join(self, lane: Lane, name: str, standing: Standing | None, *, is_first: bool) -> Joined:
        latest = is_first and self._may_skip(lane)
        kind = self._options.subscription_type
        if self._is_own(lane) and kind is SubscriptionType.KEY_SHARED:
            # Parked records wait for nobody, so that keys need not stay together.
            kind = SubscriptionType.SHARED
        position = pulsar.InitialPosition.Latest if latest else pulsar.InitialPosition.Earliest
        consumer = await self._library.subscribe(
            name,
            self._spec.group,
            consumer_type=_TYPES[kind],
            consumer_name=self.who,
            receiver_queue_size=self._options.receiver_queue,
            initial_position=position,
            batch_receive_policy=receive_policy(),
            batch_index_ack_enabled=True,
            start_message_id_inclusive=True,
        )
        if standing is None:
            return Joined(lane, name, consumer, 0, False, None)
        try:
            last = await self._library.run(f"find the end of {name}", consumer.get_last_message_id)
        except BaseException:
            # Nobody would take from it; but it would stay, connect anew whenever it must, and keep its share for ever.
            await self._library.leave(consumer)
            raise
        end = max(standing.start, positions.end(last.ledger_id(), last.entry_id(), last.batch_index()))
        start = standing.cursors.get(self._spec.group)
        first = start is None
        if start is None:
            start = end if latest else standing.start
        # Of what came after the group and before its end was found, nothing is acked.
        return Joined(lane, name, consumer, start, first, LaneEnd(standing.start, end), not (first and latest))
