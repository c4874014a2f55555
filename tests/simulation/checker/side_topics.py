"""Checks what is written to the retry topic and to the dead-letter topic."""

import json
from typing import Any

from sidecar.model.records import Message, Order
from sidecar.settings import Exhausted, SubscriptionSettings
from tests.simulation.broker.storage import StoredRecord
from tests.simulation.checker.promises import Promise
from tests.simulation.checker.settlements import SettlementChecks
from tests.simulation.checker.state import Phase, TrackedRecord
from tests.simulation.world import World


class SideTopicChecks(SettlementChecks):
    """Records that leave their lane: parked ones and dead letters."""

    def __init__(self, world: World, settings: SubscriptionSettings) -> None:
        super().__init__(world, settings)
        #: the delivery for which each message is written: a write may outlive its lane's epoch
        self._side_writes: dict[int, tuple[Message, TrackedRecord | None]] = {}

    def origin_of_parked(self, message: Message) -> tuple[str, int, int]:
        said = _said_of_parked(message)
        return said["topic"], said["lane"], said["position"]

    def writing_to_side_topic(self, message: Message, copy: StoredRecord, *, parked: bool) -> None:
        """The sidecar writes a record to a side topic: was there a reason to?"""
        self.catch_up()
        if (message.key, message.value) != (copy.key, copy.value):
            self.world.broken(Promise.NOTHING_IS_LOST, f"{copy} was changed on its way to a side topic")
        if id(message) not in self._side_writes:
            too_large = not parked and _is_too_large(message)
            self._side_writes[id(message)] = message, self._in_this_epoch(copy) if too_large else _item_of(copy)
        item = self._written_for(message)
        if parked:
            if self.settings.order is not Order.NONE or not self.settings.parking.enabled:
                self.world.broken(Promise.ORDER, f"{copy} is parked, but parking is not for this order")
            if item is None or not item.waits:
                self.world.broken(Promise.NACK_REPLAYS, f"{copy} is parked without a reason to wait")
            said = _said_of_parked(message)
            known = (item.failures, item.worker_crashes)
            if item.epoch.phase is not Phase.GONE and known != (said["failures"], said["deaths"]):
                self.world.broken(Promise.NACK_REPLAYS, f"{copy} is parked as {said}, known of it is {known}")
            return
        reason = _reason(message)
        if reason.startswith("REJECTED"):
            if item is None or not item.rejected:
                self.world.broken(Promise.POISON, f"{copy} is dead-lettered as rejected, but nobody rejected it")
        elif _is_too_large(message):
            if not any(0 < largest < copy.size for _, largest in self.largest):
                self.world.broken(
                    Promise.POISON, f"{copy} of {copy.size} bytes is dead-lettered as too large: {self.largest}"
                )
        else:
            self._check_given_up(copy, item, reason)

    def _in_this_epoch(self, copy: StoredRecord) -> TrackedRecord | None:
        """What is tracked of it in the current epoch, in which it may not have been delivered."""
        item = _item_of(copy)
        lane, position = (copy.lane, copy.position) if item is None else (item.epoch.lane, item.position)
        current = self.epochs.get(lane)
        return item if current is None else current.items.get(position, item)

    def _written_for(self, message: Message) -> TrackedRecord | None:
        return self._side_writes[id(message)][1]

    def _check_given_up(self, copy: StoredRecord, item: TrackedRecord | None, reason: str) -> None:
        if item is None or not (item.can_end or item.must_end):
            failures = item.failures if item else 0
            if item is not None and (failures >= self.settings.retry.attempts or item.worker_crashes >= 3):
                self.world.broken(
                    Promise.OUTAGE, f"{copy} is given up, and nothing has succeeded since it first failed: {reason}"
                )
            self.world.broken(Promise.POISON, f"{copy} is dead-lettered after {failures} failures: {reason}")
        if self.settings.retry.exhausted is not Exhausted.DEAD_LETTER:
            self.world.broken(
                Promise.POISON, f"{copy} is dead-lettered, but the settings say {self.settings.retry.exhausted}"
            )
        if reason != item.reason:
            self.world.broken(Promise.POISON, f"{copy} is dead-lettered for {reason!r}, not for {item.reason!r}")
        self.exercised(Promise.POISON)

    def parked(self, origin: StoredRecord, copy: StoredRecord, message: Message, *, redriven: bool) -> None:
        """The retry topic has the copy."""
        # The record may also come from its lane, or from another copy.
        copy.possibly_processed = True
        if redriven:
            self.exercised("redrive")
            copy.kind = origin.kind
            return
        self.exercised("park")
        item = self._written_for(message)
        assert item is not None
        # As it was when the sidecar decided so: the lane may have moved since.
        said = _said_of_parked(message)
        copy.failures, copy.worker_crashes = said["failures"], said["deaths"]
        copy.counted_failures = said["strikes"]
        copy.failed_ms = said["failed_ms"]
        copy.not_before, copy.ready = item.not_before, item.ready
        assert item.grant is not None
        copy.longest_wait = item.ready - item.grant.granted
        copy.jumps_before = item.grant.jumps
        origin.parked = True
        if item.waits:
            self._settled(item)

    def unparked(self, item: TrackedRecord) -> None:
        """A record of the retry topic arrived: what was stored as time of day is read by the clock of today."""
        copy, now = item.copy, self.world.now
        if copy.failed_ms is not None:
            item.first_failed = now - max(0, self.world.clock.wall_ms() - copy.failed_ms) / 1000
        if copy.jumps_before != self.world.clock.jumps:
            # It may come early. But no clock makes it wait longer than its parking asked for.
            item.not_before = 0.0
            item.ready = max(item.ready, now + copy.longest_wait)

    def dead_lettered(self, origin: StoredRecord, message: Message) -> None:
        """The dead-letter topic has the record."""
        self.exercised("dead letter")
        origin.dead = True
        item = self._written_for(message)
        # Only in the epoch in which it was given up: if it was fetched again since, it is delivered again.
        if item is not None and (item.rejected or item.can_end or item.must_end or _is_too_large(message)):
            self._settled(item)


def _reason(message: Message) -> str:
    return next((header.value or b"").decode() for header in message.headers if header.name == "offramp-reason")


def _is_too_large(message: Message) -> bool:
    return _reason(message).startswith("TOO_LARGE")


def _item_of(copy: StoredRecord) -> TrackedRecord | None:
    return copy.item if isinstance(copy.item, TrackedRecord) else None


def _said_of_parked(message: Message) -> dict[str, Any]:
    said = json.loads(message.headers[-1].value or b"")
    assert isinstance(said, dict)
    return said
