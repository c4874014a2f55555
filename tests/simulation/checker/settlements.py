"""Checks the results of settlements, and tracks what follows from settlements, expiries and ended sessions."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from sidecar.model.records import (
    Extended,
    ExtendStatus,
    Order,
    Outcome,
    SessionEnd,
    Settlement,
    SettleResult,
    SettleStatus,
)
from sidecar.settings import Exhausted, SubscriptionSettings
from tests.simulation.checker.deliveries import DeliveryChecks
from tests.simulation.checker.promises import Promise
from tests.simulation.checker.state import Flag, Grant, Phase, TrackedRecord
from tests.simulation.world import World


class Statement(NamedTuple):
    """What a settlement says of some records of a batch."""

    indexes: Sequence[int]
    outcome: Outcome
    reason: str
    retry_after: float | None


class SettlementChecks(DeliveryChecks):
    """Settlements, extensions, expiries and the ends of sessions."""

    def __init__(self, world: World, settings: SubscriptionSettings) -> None:
        super().__init__(world, settings)
        #: sessions that want no more
        self.stopped: set[Any] = set()
        #: leases that outlive their session
        self.detached: dict[bytes, Grant] = {}

    # Sessions

    def connected(self, session: Any) -> None:
        self.sessions[session] = {}
        self._note_largest()
        self.progress.session_changed(session)

    def session_ended(self, session: Any, how: SessionEnd, *, down: bool) -> None:
        """`down`: the subscription considers the handler down."""
        self.catch_up()
        self.world.happened("session ends", self.world.names[session], how.value)
        held = self.sessions.pop(session, {})
        self.progress.session_changed(session)
        self._note_largest()
        if how is SessionEnd.DETACHED:
            self.detached.update(held)
            return
        alone = sum(len(grant.unsettled()) for grant in held.values()) == 1
        for grant in [*held.values()]:
            grant.live = False
            grant.how = how.value
            self.isolation.disturb(grant)
            self._forget(grant)
            unit = [grant.items[index] for index in grant.unsettled()]
            if how is SessionEnd.LOST:
                self.exercised("a worker dies")
                self._died(unit, alone=alone, down=down)
            else:
                self._returned(unit, 0.0)

    def _note_largest(self) -> None:
        largest = max((session.hard_bytes for session in self.sessions), default=0)
        self.largest.append((self.world.now, largest))

    def written(self, leases: Sequence[bytes]) -> None:
        for lease in leases:
            grant = self.grants.get(lease)
            if grant is not None and grant.live and grant.written is None:
                grant.written = self.world.now
                grant.deadline = self.world.now + grant.limit

    def expire(self, grant: Grant) -> None:
        """The deadline of a grant has passed."""
        grant.live = False
        grant.how = "expired"
        self.exercised("a lease expires" if grant.written is not None else "a lease expires that was never written")
        self.isolation.disturb(grant)
        self._forget(grant)
        unit = [grant.items[index] for index in grant.unsettled()]
        if unit:
            for item in unit:
                item.reason = "EXPIRED"
            self._failed(unit, grant.deadline, None, possibly_processed=True)

    def extended(self, lease: bytes, seconds: float, answer: Extended) -> None:
        grant = self.grants.get(lease)
        now = self.world.now
        if grant is None:
            if answer.status is not ExtendStatus.UNKNOWN:
                self.world.broken(Promise.TRUTHFUL, f"an unknown lease was extended: {answer}")
            return
        if not grant.live or grant.deadline <= now:
            if answer.status is not ExtendStatus.ENDED:
                self.world.broken(Promise.TRUTHFUL, f"{grant}, which ended, was extended: {answer}")
            return
        if answer.status is not ExtendStatus.EXTENDED:
            self.world.broken(Promise.TRUTHFUL, f"{grant} is live and was not extended: {answer}")
        self.exercised("a lease is extended")
        longest = float(self.settings.lease.max)
        if grant.written is None:
            grant.limit = min(max(grant.limit, seconds), longest)
            return
        grant.deadline = max(grant.deadline, min(now + seconds, grant.written + longest))
        if abs(grant.deadline - now - answer.lease_for) > 1e-6:
            self.world.broken(
                Promise.TRUTHFUL, f"{grant} lasts {grant.deadline - now} s and was said to last {answer.lease_for}"
            )

    # Settlements

    def settled(self, settlement: Settlement, result: SettleResult, *, down: tuple[bool, bool]) -> None:
        """A worker settled, and got this result. `down`: whether the subscription considered the handler down, before
        and after."""
        world = self.world
        grant = self.grants.get(settlement.lease)
        world.happened("settled", grant or settlement.lease, _said(settlement), result.status.name, result.stale)
        if grant is None:
            if result.status is not SettleStatus.UNKNOWN:
                world.broken(Promise.TRUTHFUL, f"a lease of another life was answered {result}")
            self.exercised("a lease from before a restart")
            return
        if result.status is SettleStatus.UNKNOWN:
            world.broken(Promise.TRUTHFUL, f"{grant} was answered {result}")
        if (result.status is SettleStatus.REFUSED) is not _is_nonsense(len(grant.items), settlement):
            world.broken(Promise.TRUTHFUL, f"{grant}: {_said(settlement)} was answered {result}")
        if result.status is SettleStatus.REFUSED:
            # All that it says is as before.
            self.exercised("an invalid settlement")
            return
        if (result.status is SettleStatus.STALE) is not bool(result.stale):
            world.broken(
                Promise.TRUTHFUL, f"{grant}: {result} says stale and does not say what, or the other way round"
            )
        self.catch_up()
        stale = {index for each in result.stale for index in range(each.first, each.first + each.count)}
        self.isolation.settled(grant, settlement, down=any(down))
        statements = _statements(len(grant.items), settlement)
        named = {index for statement in statements for index in statement.indexes}
        if not stale <= named:
            world.broken(
                Promise.TRUTHFUL, f"{grant}: stale {sorted(stale)} names what was not settled: {sorted(named)}"
            )
        successes = self.success_in_life
        # An ack counts for all parts of the same settlement, whatever their order.
        statements.sort(key=lambda statement: statement.outcome is not Outcome.ACK)
        acked = False
        for statement in statements:
            acked |= self._statement(grant, statement, stale, successes, down=down, acked=acked)
        if grant.live and not grant.unsettled():
            grant.live = False
            grant.how = "settled"
            self._forget(grant)
        self.exercised(Promise.TRUTHFUL)

    def _statement(
        self,
        grant: Grant,
        statement: Statement,
        stale: set[int],
        successes: float | None,
        *,
        down: tuple[bool, bool],
        acked: bool,
    ) -> bool:
        """`acked`: the same settlement acks other records. Returns whether this statement acks some."""
        world, outcome = self.world, statement.outcome
        unit: list[TrackedRecord] = []
        fresh = 0
        for index in statement.indexes:
            item, before = grant.items[index], grant.said[index]
            if before is None:
                fresh += 1
            must, may = self._expected(grant, item, before, outcome)
            if index in stale and must is False:
                world.broken(Promise.TRUTHFUL, f"{item} of {grant} ({grant.how or 'live'}) was refused: {outcome.name}")
            if index not in stale and may is False:
                world.broken(
                    Promise.TRUTHFUL, f"{item} of {grant} ({grant.how or 'live'}) was accepted: {outcome.name}"
                )
            if index in stale:
                self.exercised("a stale answer")
                if before is None and grant.live:
                    grant.said[index] = "stale"
                continue
            if before is not None:
                self.exercised("a settlement is repeated")
                continue
            if grant.live:
                grant.said[index] = outcome
                unit.append(item)
                continue
            grant.said[index] = outcome
            if outcome in (Outcome.ACK, Outcome.REJECT):
                self.exercised("a late settlement is accepted")
                unit.append(item)
            else:
                # The record waits for its retry already. But the worker may have asked for less.
                self.exercised("a late settlement that is not final")
                if outcome is Outcome.OVERLOADED:
                    self.progress.overloaded()
        if unit:
            if outcome is Outcome.NACK and grant.fresh and not statement.retry_after and not acked:
                self.failing.add(grant.id)
            self._apply(unit, fresh, statement, successes, down=down)
        return bool(unit) and outcome is Outcome.ACK

    def _expected(
        self, grant: Grant, item: TrackedRecord, before: object, outcome: Outcome
    ) -> tuple[bool | None, bool | None]:
        """Two values: False if it must not be refused, and False if it must not be accepted."""
        if before == "stale":
            return None, False
        if before is not None:
            return (False, None) if before is outcome else (None, False)
        if item.epoch.phase is Phase.GONE:
            return None, False
        if grant.live:
            return False, None
        if item.grant is not grant or item.done:
            return None, False
        if item.waits or item.can_end or item.must_end or item.rejected or item.epoch.phase is Phase.LEAVING:
            # It may be on its way to the dead-letter or retry topic, which counts as delivered again.
            return None, None
        if any(0 < largest < item.copy.size for _, largest in self.largest):
            # It may be too large for all others, and so on its way to the dead-letter topic.
            return None, None
        return False, None

    def _apply(
        self,
        unit: Sequence[TrackedRecord],
        stated: int,
        statement: Statement,
        successes: float | None,
        *,
        down: tuple[bool, bool],
    ) -> None:
        now, retry_after = self.world.now, statement.retry_after
        self.exercised(statement.outcome.name)
        match statement.outcome:
            case Outcome.ACK:
                self.last_success = self.success_in_life = now
                self.failing.clear()
                self.may_be_failing.clear()
                for item in unit:
                    item.acked = item.copy.acked = True
                    self._settled(item)
            case Outcome.NACK:
                for item in unit:
                    item.reason = statement.reason
                self._failed(unit, now, retry_after, known_down=down, stated=stated, successes=successes)
            case Outcome.RELEASE:
                self._returned(unit, 0.0)
            case Outcome.OVERLOADED:
                self.progress.overloaded()
                self._returned(unit, self._shortest(1) if retry_after is None else retry_after)
                for item in unit:
                    item.waits = True
                    item.ready = now + self._longest(retry_after)
            case Outcome.REJECT:
                for item in unit:
                    item.rejected = True

    # Consequences

    def _settled(self, item: TrackedRecord) -> None:
        if item.done:
            return
        item.done = True
        item.done_at = item.epoch.emptied = self.world.now
        if not item.dropped:
            item.epoch.held_records -= 1
            item.epoch.held_bytes -= item.copy.size
        if item.copy.key is not None and self.settings.order is Order.KEY:
            mine = item.epoch.by_key[item.copy.key]
            if item in mine:
                mine.remove(item)

    def _may_be_dropped(self, item: TrackedRecord) -> None:
        """It counts as dropped, unless it is delivered again."""
        if not item.dropped:
            item.dropped = True
            item.epoch.held_records -= 1
            item.epoch.held_bytes -= item.copy.size

    def _forget(self, grant: Grant) -> None:
        self.live.pop(grant.id, None)
        grant.ended = self.world.now
        held = self.sessions.get(grant.session)
        if held is not None:
            held.pop(grant.id, None)
            self.progress.session_changed(grant.session)

    def _returned(self, unit: Sequence[TrackedRecord], after: float) -> None:
        for item in unit:
            item.not_before = item.ready = self.world.now + after

    def _died(self, unit: Sequence[TrackedRecord], *, alone: bool, down: bool) -> None:
        """The worker died. Only a record that it held alone can be blamed, and none while the handler is down: failures
        then say nothing about a record."""
        now = self.world.now
        for item in unit:
            item.failures += 1
            item.counted_failures += not down
            item.worker_crashes += not down
            item.flag = Flag.MUST
            item.reason = "WORKER_DIED"
            if item.first_failed is None:
                item.first_failed = now
            if item.worker_crashes <= 1:
                item.not_before = item.ready = now
                continue
            item.not_before = now + self._shortest(item.worker_crashes - 1)
            item.ready = now + self._longest(None)
            item.waits = True
            item.alone = True
            item.epoch.suspects.append(item)
            if item.worker_crashes >= 3 and alone and not down:
                item.can_end = self._others_succeed(item, self._success_at_most())
                if self.settings.retry.exhausted is Exhausted.DROP and item.can_end:
                    self._may_be_dropped(item)

    def _failed(
        self,
        unit: Sequence[TrackedRecord],
        now: float,
        retry_after: float | None,
        *,
        possibly_processed: bool = False,
        known_down: tuple[bool, bool] | None = None,
        stated: int | None = None,
        successes: float | None = None,
    ) -> None:
        """A nack or an expiry. It counts only for a record alone; a batch is split first."""
        if not retry_after and any(item.first_failed is None for item in unit):
            self.may_be_failing.update(item.grant.id for item in unit if item.grant is not None)
        for item in unit:
            if item.first_failed is None:
                item.first_failed = now
            if possibly_processed:
                item.flag = Flag.MUST
            item.waits = True
            item.not_before = now + (retry_after or 0.0)
            item.ready = now + self._longest(retry_after)
        if (len(unit) if stated is None else stated) > 1:
            return
        (item,) = unit
        item.failures += 1
        if known_down is not None and not known_down[0]:
            item.counted_failures += 1
        item.not_before = now + (self._shortest(item.failures) if retry_after is None else retry_after)
        retry = self.settings.retry
        if item.failures < retry.attempts:
            return
        item.can_end = self._others_succeed(item, self._success_at_most())
        if retry.exhausted is Exhausted.HOLD:
            item.can_end = False
        elif known_down is not None and not known_down[1] and item.counted_failures >= retry.attempts:
            # Settlements of one call may be applied in any order, so only earlier successes are sure to count.
            item.must_end = self._others_succeed(item, None if successes is None else successes - 0.003)
        if retry.exhausted is Exhausted.DROP and item.can_end:
            self._may_be_dropped(item)

    def _success_at_most(self) -> float | None:
        # The first failure of a parked record is stored in milliseconds.
        return None if self.last_success is None else self.last_success + 0.003

    def _others_succeed(self, item: TrackedRecord, success: float | None) -> bool:
        """Whether something succeeded since the record first failed; otherwise it may be an outage."""
        if not self.settings.outage.enabled:
            return True
        return success is not None and item.first_failed is not None and success >= item.first_failed

    def _longest(self, retry_after: float | None) -> float:
        return float(self.settings.retry.max) if retry_after is None else max(retry_after, self.settings.retry.max)

    def _shortest(self, failures: int) -> float:
        retry = self.settings.retry
        full = min(float(retry.max), float(retry.first) * retry.factor ** max(0, failures - 1))
        return full * (1.0 - retry.jitter)


def _is_nonsense(records: int, settlement: Settlement) -> bool:
    """Whether its parts do not fit a batch of so many records."""
    indexes = [index for part in settlement.parts for index in range(part.first, part.first + part.count)]
    return any(after <= before for before, after in pairwise(indexes)) or any(
        not part.count or part.first + part.count > records for part in settlement.parts
    )


def _statements(records: int, settlement: Settlement) -> list[Statement]:
    """A statement for each part, and one for the rest."""
    out = [
        Statement(range(part.first, part.first + part.count), part.outcome, part.reason, part.retry_after)
        for part in settlement.parts
    ]
    named = {index for statement in out for index in statement.indexes}
    rest = [index for index in range(records) if index not in named]
    if settlement.outcome is not None and rest:
        out.append(Statement(rest, settlement.outcome, settlement.reason, settlement.retry_after))
    return out


def _said(settlement: Settlement) -> str:
    whole = settlement.outcome.name if settlement.outcome else "partial"
    parts = [(part.first, part.count, part.outcome.name, part.retry_after) for part in settlement.parts]
    return f"{whole} {settlement.retry_after} {parts}"
