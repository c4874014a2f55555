"""Joining lanes: where a group starts in each, in which order they are joined, and when one that failed is retried."""

import asyncio
import os
import socket
from collections.abc import Collection, Iterable
from math import inf
from typing import Any, NamedTuple

import pulsar

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.pulsar import positions
from sidecar.brokers.pulsar.admin import Admin, TopicState
from sidecar.brokers.pulsar.client_threads import ClientThreads
from sidecar.brokers.pulsar.lane import receive_policy
from sidecar.brokers.pulsar.options import PulsarOptions, SubscriptionType
from sidecar.model.errors import BrokerError, NotFound
from sidecar.model.records import Lane, Start

_TYPES = {
    SubscriptionType.EXCLUSIVE: pulsar.ConsumerType.Exclusive,
    SubscriptionType.FAILOVER: pulsar.ConsumerType.Failover,
    SubscriptionType.SHARED: pulsar.ConsumerType.Shared,
    SubscriptionType.KEY_SHARED: pulsar.ConsumerType.KeyShared,
}
#: seconds after which a lane that was joined again counts as working
_STABLE_AFTER = 10.0
#: seconds before a lane that fails sooner is joined again
_BACKOFF = 10.0


class JoinedLane(NamedTuple):
    lane: Lane
    name: str
    consumer: Any
    #: the position of the group, 0 if that is not known
    start: int
    #: the group was never in this lane
    first: bool
    #: None if they are not known
    ends: LaneEnd | None
    #: the broker has acks for all before the start
    acked_before: bool = True


class LaneJoiner:
    """Makes the consumers of one group."""

    def __init__(self, spec: SourceSpec, options: PulsarOptions, client: ClientThreads, admin: Admin) -> None:
        self._spec = spec
        self._options = options
        self._client = client
        self._admin = admin
        #: names this sidecar among the consumers of a subscription
        self.consumer_name = f"offramp-{socket.gethostname()}-{os.urandom(3).hex()}"
        self._has_joined = False

    async def join(self, lanes: Collection[tuple[Lane, str]]) -> list[JoinedLane]:
        """Joins all of the lanes or none. Raises the first error of the broker."""
        states = dict(zip(lanes, await asyncio.gather(*(self._topic_state(name) for _, name in lanes)), strict=True))
        known = {lane for (lane, _), state in states.items() if state is not None and self._spec.group in state.cursors}
        initial = InitialLanes(known, self._later_topics({lane.topic for lane, _ in lanes}, known))
        steps = initial.join_steps(lane for lane, _ in lanes if self._may_skip(lane))
        # The group's own topics come last: a group that is in them has been in all that it began with.
        last = 1 + max(steps.values(), default=-1)
        steps |= {lane: last for lane, _ in lanes if self._is_own(lane)}
        joined: list[JoinedLane] = []
        for step in sorted({0, *steps.values()}):
            wanted = [(lane, name, state) for (lane, name), state in states.items() if steps.get(lane, 0) == step]
            done = await asyncio.gather(
                *(self._join(*one, is_initial=initial.is_initial(one[0])) for one in wanted), return_exceptions=True
            )
            joined += [one for one in done if isinstance(one, JoinedLane)]
            failed = [one for one in done if isinstance(one, BaseException)]
            if failed:
                await asyncio.gather(*(self._client.close_one(one.consumer) for one in joined))
                raise failed[0]
        self._has_joined = True
        return joined

    def _later_topics(self, topics: Collection[str], known: Collection[Lane]) -> Collection[str]:
        """The topics that were created after the group, unless the group is in them."""
        if self._has_joined:
            return topics
        # A topic that is configured by its name may be older than that line of the configuration.
        return {*topics}.difference(self._spec.topics) if any(map(self._is_own, known)) else ()

    def _may_skip(self, lane: Lane) -> bool:
        """Whether the group may leave out what was there before it."""
        return self._spec.start is Start.LATEST and not self._is_own(lane)

    def _is_own(self, lane: Lane) -> bool:
        return lane.topic in self._spec.own_topics

    async def _topic_state(self, name: str) -> TopicState | None:
        """None: not known. The admin API may be out of reach while the broker is not."""
        try:
            return await self._admin.topic_state(name)
        except NotFound:
            return TopicState(0, (-1, -1), {})
        except BrokerError:
            return None

    async def _join(self, lane: Lane, name: str, state: TopicState | None, *, is_initial: bool) -> JoinedLane:
        latest = is_initial and self._may_skip(lane)
        kind = self._options.subscription_type
        if self._is_own(lane) and kind is SubscriptionType.KEY_SHARED:
            # Parked records wait for nobody, so their keys need not stay together.
            kind = SubscriptionType.SHARED
        position = pulsar.InitialPosition.Latest if latest else pulsar.InitialPosition.Earliest
        consumer = await self._client.subscribe(
            name,
            self._spec.group,
            consumer_type=_TYPES[kind],
            consumer_name=self.consumer_name,
            receiver_queue_size=self._options.receiver_queue,
            initial_position=position,
            batch_receive_policy=receive_policy(),
            batch_index_ack_enabled=True,
            start_message_id_inclusive=True,
        )
        if state is None:
            return JoinedLane(lane, name, consumer, 0, False, None)
        try:
            last = await self._client.run(f"find the end of {name}", consumer.get_last_message_id)
        except BaseException:
            # An open consumer that nobody receives from would reconnect and keep its share of messages forever.
            await self._client.close_one(consumer)
            raise
        end = max(state.start, positions.end(last.ledger_id(), last.entry_id(), last.batch_index()))
        start = state.cursors.get(self._spec.group)
        first = start is None
        if start is None:
            start = end if latest else state.start
        # What arrived between the creation of the group at the latest position and the look at the end is unacked.
        return JoinedLane(lane, name, consumer, start, first, LaneEnd(state.start, end), not (first and latest))


class InitialLanes:
    """Which lanes a group begins with, and which were added later, so that `start: latest` skips no record of those.

    Pulsar keeps nothing of a group but its cursors, one for each lane. A lane without a cursor was added later, or the
    group was about to create its first cursors when it was interrupted. What tells them apart: partitions are only ever
    added at the end of a topic. Pure.
    """

    def __init__(self, known: Collection[Lane], later: Collection[str] = ()) -> None:
        """`known`: lanes in which the group has a cursor. `later`: topics of which the group has joined every lane that
        there was; a lane of these without a cursor was added later, or lost it because the topic was created again."""
        self._known = known
        self._later = later
        #: by topic, the last lane in which the group has a cursor
        self._last: dict[str, int] = {}
        for lane in known:
            self._last[lane.topic] = max(lane.number, self._last.get(lane.topic, 0))

    def is_initial(self, lane: Lane) -> bool:
        """Whether the group begins with this lane."""
        return lane.topic not in self._later and lane.number <= self._last.get(lane.topic, lane.number)

    def join_steps(self, lanes: Iterable[Lane]) -> dict[Lane, int]:
        """In which step to join each lane; those of one step are joined at the same time.

        Another sidecar may look between two steps, and each step may be the last one that works. So that an initial
        lane never looks like one that was added later, the last of them is joined before the others; so that none that
        was added later looks like an initial one, these are joined one by one, in order.
        """
        steps: dict[Lane, int] = {}
        later: dict[str, int] = {}
        begun = set(self._last)
        lanes = sorted(lanes)
        for lane in lanes:
            if lane in self._known:
                steps[lane] = 0
            elif not self.is_initial(lane):
                steps[lane] = later[lane.topic] = later.get(lane.topic, -1) + 1
        for lane in reversed(lanes):
            if lane not in steps:
                steps[lane] = int(lane.topic in begun)
                begun.add(lane.topic)
        return steps


class RejoinBackoff:
    """The lanes of one group that keep failing: each waits for a while before it is joined again. Pure."""

    def __init__(self) -> None:
        #: when a lane was last joined again
        self._rejoined: dict[Lane, float] = {}
        #: when the wait of a lane ends
        self._until: dict[Lane, float] = {}
        #: why a lane failed
        self._reasons: dict[Lane, str] = {}

    def __contains__(self, lane: Lane) -> bool:
        """Whether the lane waits."""
        return lane in self._until

    def rejoined(self, lane: Lane, now: float) -> None:
        """The lane was joined after a failure."""
        self._rejoined[lane] = now

    def failed(self, lane: Lane, why: str, now: float) -> None:
        if now - self._rejoined.get(lane, -inf) < _STABLE_AFTER:
            self._until[lane] = now + _BACKOFF
            self._reasons[lane] = why

    def end_waits(self, now: float) -> bool:
        """Ends the waits that are over. True: there were some, and their lanes may be joined again."""
        due = [lane for lane, until in self._until.items() if until <= now]
        for lane in due:
            del self._until[lane]
        return bool(due)

    def trouble(self, now: float) -> str:
        """One of the lanes that keep failing, as a sentence; empty once all of them work."""
        for lane in [*self._reasons]:
            if lane not in self._until and now - self._rejoined[lane] >= _STABLE_AFTER:
                del self._reasons[lane]
        # Mostly they all have the same reason.
        return next((f"{lane} fails whenever it is joined: {why}" for lane, why in self._reasons.items()), "")
