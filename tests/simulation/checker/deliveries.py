"""Checks every batch that goes to a worker."""

from collections.abc import Sequence
from typing import Any

from sidecar.model.records import ClosedBy, Delivery, Lane, Order, Redelivery
from sidecar.settings import SubscriptionSettings
from tests.simulation.broker.storage import StoredRecord
from tests.simulation.checker.isolation import Isolation
from tests.simulation.checker.progress import Progress
from tests.simulation.checker.promises import Promise
from tests.simulation.checker.state import Epoch, Flag, Grant, Phase, TrackedRecord
from tests.simulation.world import World

#: seconds of tolerance: due times that survive a restart are stored in milliseconds
_MILLISECONDS = 0.003
#: seconds for which a record that may kill its worker waits for one that holds nothing else
_ALONE_WITHIN = 5.0
#: seconds of tolerance for rounding
_ROUNDED = 1e-9


class DeliveryChecks:
    """The tracked state, and the checks of deliveries."""

    #: sessions that want no more, and the other checks: set by subclasses
    stopped: set[Any]
    progress: Progress

    def expire(self, grant: Grant) -> None:
        """The deadline of a grant has passed."""
        raise NotImplementedError

    def __init__(self, world: World, settings: SubscriptionSettings) -> None:
        self.world = world
        self.settings = settings
        self.exercised = world.exercised
        self.life = 0
        self.epochs: dict[Lane, Epoch] = {}
        self.grants: dict[bytes, Grant] = {}
        #: of all lives
        self.leases: set[bytes] = set()
        #: grants that are not settled and have not ended
        self.live: dict[bytes, Grant] = {}
        #: the same by session
        self.sessions: dict[Any, dict[bytes, Grant]] = {}
        self.by_frame: dict[tuple[str, bytes], StoredRecord] = {}
        self.draining = False
        self.paused = False
        #: when the subscription last resumed, after a pause or an outage
        self.resumed_at = 0.0
        #: when a batch was last acked, in any life
        self.last_success: float | None = None
        self.success_in_life: float | None = None
        self.largest_record = 0
        #: (time, the largest message that any connected worker takes)
        self.largest: list[tuple[float, int]] = [(0.0, 0)]
        #: batches of first deliveries that failed since the last success
        self.failing: set[bytes] = set()
        #: all batches that may have failed since then of which no record had failed before
        self.may_be_failing: set[bytes] = set()
        #: since when the subscription takes the handler for down, and the last success in this life before that
        self._down_since: float | None = None
        self._success_before: float | None = None
        #: since when each session has held batches without a break
        self._busy_since: dict[Any, float] = {}
        self.isolation = Isolation(world, settings.order)

    def delivered(self, session: Any, delivery: Delivery, *, down: bool) -> None:
        """A batch goes to a session. `down`: the subscription considers the handler down."""
        world = self.world
        self.catch_up()
        items = self._items(delivery)
        grant = Grant(delivery.lease, session, items, delivery.size, delivery.lease_for)
        grant.granted, grant.jumps = world.now, world.clock.jumps
        # Until it is written.
        grant.deadline = world.now + self.settings.lease.max
        grant.probe = delivery.closed_by is ClosedBy.PROBE
        grant.fresh = all(item.grant is None and item.copy.origin is None for item in items)
        grant.untried = all(item.grant is None for item in items)
        world.happened(
            "delivered", grant, world.names[session], delivery.closed_by.name, items, _told(delivery.redeliveries)
        )
        if delivery.lease in self.leases:
            world.broken(Promise.TRUTHFUL, f"{grant} was given out twice")
        self._check_shape(delivery, items)
        self._check_session(session, grant, delivery)
        self._check_alone(session, grant)
        self._check_state(grant, items, down=down)
        told = _by_index(delivery)
        for index, item in enumerate(items):
            self._check_item(item, items, grant)
            self._check_history(item, told.get(index))
        for epoch in {id(item.epoch): item.epoch for item in items}.values():
            self._check_window(epoch, max(item.position for item in items if item.epoch is epoch))
        self._check_order(items)
        self.isolation.delivered(grant, delivery.closed_by)
        self.leases.add(grant.id)
        self.grants[grant.id] = self.live[grant.id] = grant
        self.sessions[session][grant.id] = grant
        for item in items:
            item.grant = grant
            item.copy.item = item
            item.copy.last_delivered_by = self.life
            item.copy.beyond_any_reach |= item.epoch.log.reach is None
            item.waits = False
            if item.dropped:
                item.dropped = False
                item.epoch.held_records += 1
                item.epoch.held_bytes += item.copy.size
        if self.settings.order is not Order.LANE:
            self._check_spread(session, items)
        self.progress.delivered(session, grant, down=down)

    def catch_up(self) -> None:
        """End the grants whose deadline has passed, whether or not anything has shown it yet."""
        now = self.world.now
        for grant in [grant for grant in self.live.values() if grant.deadline <= now]:
            self.expire(grant)

    def _items(self, delivery: Delivery) -> list[TrackedRecord]:
        items = []
        for frame in delivery.frames:
            copy = self.by_frame.get((delivery.topic, frame))
            if copy is None:
                self.world.broken(Promise.NOTHING_IS_LOST, f"a record of {delivery.topic} was changed: {frame!r}")
            epoch = self.epochs.get(copy.lane)
            if epoch is None or epoch.phase is not Phase.ACTIVE:
                self.world.broken(Promise.REBALANCE, f"{copy} is delivered, but its lane is not this sidecar's")
            item = epoch.items.get(copy.position)
            if item is None:
                promise = Promise.RESTART if epoch.was_settled(copy.position) else Promise.REBALANCE
                self.world.broken(promise, f"{copy} is delivered, but was settled before or never fetched since")
            items.append(item)
        return items

    def _check_shape(self, delivery: Delivery, items: Sequence[TrackedRecord]) -> None:
        batch = self.settings.batch
        if not items or delivery.records != len(items) or delivery.size != sum(map(len, delivery.frames)):
            self.world.broken(Promise.PROTOCOL, f"{len(items)} records, said {delivery.records}")
        if len(items) > batch.records or (delivery.size > batch.bytes and len(items) > 1):
            self.world.broken(Promise.PROTOCOL, f"{len(items)} records of {delivery.size} bytes exceed {batch}")
        if delivery.lanes != tuple(dict.fromkeys(item.copy.shown.number for item in items)):
            self.world.broken(Promise.PROTOCOL, f"lanes {delivery.lanes} of {items}")
        last: dict[int, int] = {}
        for item in items:
            shown = item.copy
            if shown.origin is not None:
                # Parked records come back in the order of the retry topic.
                continue
            if shown.position < last.get(shown.lane.number, 0):
                self.world.broken(
                    Promise.PROTOCOL, f"records of a lane do not stand in the order of positions: {items}"
                )
            last[shown.lane.number] = shown.position

    def _check_session(self, session: Any, grant: Grant, delivery: Delivery) -> None:
        held = self.sessions.get(session)
        if held is None or session.ended:
            self.world.broken(Promise.CREDIT, f"{grant} goes to a session that ended")
        if session in self.stopped:
            self.world.broken(Promise.CREDIT, f"{grant} goes to a session that wants no more")
        credit = session.credit
        if len(held) + 1 > credit.batches:
            self.world.broken(Promise.CREDIT, f"{len(held) + 1} batches are unsettled, allowed are {credit.batches}")
        unsettled = sum(each.size for each in held.values())
        if credit.bytes and (
            unsettled >= credit.bytes or (unsettled + delivery.size > credit.bytes and len(grant.items) > 1)
        ):
            self.world.broken(Promise.CREDIT, f"{unsettled} + {delivery.size} bytes, allowed are {credit.bytes}")
        if delivery.size > session.max_message_bytes:
            self.world.broken(
                Promise.CREDIT, f"a batch of {delivery.size} bytes, the client takes {session.max_message_bytes}"
            )

    def _check_alone(self, session: Any, grant: Grant) -> None:
        """A record that may kill its worker is alone in the process, not only in its batch."""
        held, now = self.sessions[session], self.world.now
        if not held:
            self._busy_since[session] = now
        for each in held.values():
            if each.exclusive:
                text = f"{grant} goes to a process with {each.items}, which must be alone in it"
                self.world.broken(Promise.NACK_REPLAYS, text)
        if any(item.alone for item in grant.items) and not grant.probe:
            grant.exclusive = not held
            if now < self._busy_since[session] + _ALONE_WITHIN - _ROUNDED and held:
                text = f"{grant.items} may kill its worker, which has held others for less than {_ALONE_WITHIN} s"
                self.world.broken(Promise.NACK_REPLAYS, text)

    def outage_changed(self, *, down: bool) -> None:
        """Whether the subscription takes the handler for down. Called before what caused it is checked."""
        if not down:
            self._down_since = None
        elif self._down_since is None:
            self._down_since, self._success_before = self.world.now, self.success_in_life

    def _check_outage(self, grant: Grant) -> None:
        """The handler is not taken for down because of records that failed before."""
        outage, since, success = self.settings.outage, self._down_since, self._success_before
        if since is None or success is None or since - success > outage.lately - _ROUNDED:
            return
        if len(self.may_be_failing) < outage.failures:
            text = f"{grant} is a probe, but since a success only {len(self.may_be_failing)} new batches have failed"
            self.world.broken(Promise.OUTAGE, text)

    def _check_state(self, grant: Grant, items: Sequence[TrackedRecord], *, down: bool) -> None:
        world = self.world
        if self.draining:
            world.broken(Promise.DRAIN, f"{grant} is delivered while the sidecar drains")
        if self.paused:
            world.broken(Promise.PROTOCOL, f"{grant} is delivered while the subscription is paused")
        limit = self.settings.budget.concurrency
        if limit and len(self.live) + 1 > limit:
            world.broken("the budget", f"{len(self.live) + 1} batches are in flight, allowed are {limit}")
        outage = self.settings.outage
        if not down and outage.enabled and len(self.failing) >= outage.failures:
            text = f"{grant} is delivered as if nothing were wrong: {len(self.failing)} batches failed, none succeeded"
            world.broken(Promise.OUTAGE, text)
        if down:
            self.exercised(Promise.OUTAGE)
            self._check_outage(grant)
            if len(items) > 1 or not grant.probe:
                world.broken(Promise.OUTAGE, f"{grant} of {len(items)} records while the handler is down")
            # One that hangs for long, or a word of an operator, brings another.
            since = max(self.last_success or 0.0, world.now - outage.probe_max, self.resumed_at)
            if any(each.probe and each.granted > since + _ROUNDED for each in self.live.values()):
                world.broken(Promise.OUTAGE, f"{grant} is a second probe at a time")

    def _check_item(self, item: TrackedRecord, items: Sequence[TrackedRecord], grant: Grant) -> None:
        world, now = self.world, self.world.now
        before = item.grant
        if before is not None and before.live and before.said[before.items.index(item)] is None:
            world.broken(Promise.TRUTHFUL, f"{item} is in {before} and in {grant} at a time")
        if item.done:
            world.broken(Promise.NACK_REPLAYS, f"{item} is delivered again, but it is settled")
        if item.must_end:
            world.broken(
                Promise.NACK_REPLAYS,
                f"{item} is delivered again after {item.failures} failures, {item.worker_crashes} crashes of workers",
            )
        if now < item.not_before - _MILLISECONDS:
            world.broken(Promise.NACK_REPLAYS, f"{item} is delivered at {now:.3f}, asked for was {item.not_before:.3f}")
        reach = item.epoch.log.reach
        if reach is not None and item.position >= reach:
            world.broken(
                Promise.NACK_REPLAYS, f"{item} is delivered, and by the reach of {reach} the next owner would not know"
            )
        if item.alone and len(items) > 1:
            world.broken(
                Promise.NACK_REPLAYS, f"{item} has killed {item.worker_crashes} workers and is not alone: {items}"
            )

    def _check_history(self, item: TrackedRecord, told: Redelivery | None) -> None:
        attempt = told.attempt if told else 1
        flagged = told.possibly_processed if told else False
        if attempt != item.failures + 1:
            self.world.broken(
                Promise.NACK_REPLAYS, f"{item} has attempt {attempt} after {item.failures} counted failures"
            )
        if item.flag is Flag.MUST and not flagged:
            self.world.broken(Promise.NACK_REPLAYS, f"{item} may have been processed and is not flagged")
        if item.flag is Flag.NO and flagged:
            self.world.broken(Promise.NACK_REPLAYS, f"{item} is flagged, but was not delivered before")
        if item.flag is Flag.MAY:
            item.flag = Flag.MUST if flagged else Flag.NO
        if told is not None:
            self.exercised(Promise.NACK_REPLAYS)
        if flagged:
            self.exercised("possibly processed")

    def in_window(self, item: TrackedRecord) -> bool:
        epoch, position, window = item.epoch, item.position, self.settings.window
        records, size = epoch.used(position)
        within = records <= window.records and size <= window.bytes and position < epoch.committed + window.span
        return within or position == epoch.first_past_committed()

    def _check_window(self, epoch: Epoch, position: int) -> None:
        if not self.in_window(epoch.items[position]):
            window = self.settings.window
            records, size = epoch.used(position)
            self.world.broken(
                Promise.SLOW_RECORD,
                f"{epoch.lane}@{position} is {records} records, {size} bytes past {epoch.committed}: {window}",
            )

    def _check_order(self, items: Sequence[TrackedRecord]) -> None:
        order = self.settings.order
        if order is Order.NONE:
            return
        batch = {id(item) for item in items}
        parked = any(item.copy.origin is not None for item in items)
        if order is Order.LANE and len({item.copy.lane for item in items}) > 1:
            self.world.broken(Promise.ORDER, f"a batch of several lanes: {items}")
        if parked:
            # Redriven by an operator, so out of order by choice.
            return
        seen: set[int] = set()
        for item in items:
            epoch = item.epoch
            if order is Order.LANE:
                mine = [epoch.items[position] for position in epoch.positions[: epoch.positions.index(item.position)]]
            else:
                mine = epoch.by_key[item.copy.key] if item.copy.key is not None else []
            for earlier in mine:
                if earlier.position >= item.position:
                    break
                if earlier.done or earlier.dropped:
                    continue
                if id(earlier) not in batch or id(earlier) not in seen:
                    self.world.broken(Promise.ORDER, f"{item} is delivered before {earlier}")
                self.exercised(Promise.ORDER)
            seen.add(id(item))
        self.exercised(Promise.ORDER)

    def _check_spread(self, session: Any, items: Sequence[TrackedRecord]) -> None:
        for item in items:
            live = {id(grant.session) for grant in self.live.values() if item.epoch.lane == grant.items[0].copy.lane}
            if len(live) > 1:
                self.exercised(Promise.ANY_WORKER)
                return


def _by_index(delivery: Delivery) -> dict[int, Redelivery]:
    told: dict[int, Redelivery] = {}
    for each in delivery.redeliveries:
        told.update(dict.fromkeys(range(each.first, each.first + each.count), each))
    return told


def _told(redeliveries: Sequence[Redelivery]) -> list[tuple[int, int, int, bool]]:
    return [(each.first, each.count, each.attempt, each.possibly_processed) for each in redeliveries]
