"""What workers say of their leases, what they are answered, and what follows from it."""

from collections.abc import Sequence
from typing import Any

from sidecar.model.records import Extended, Order, Outcome, SessionEnd, Settlement, SettleResult, SettleStatus
from sidecar.settings import Exhausted, SubscriptionSettings
from tests.simulation.deliveries import Deliveries
from tests.simulation.flow import Flow
from tests.simulation.items import Doubt, Hand, Item, Phase
from tests.simulation.world import World

TRUTHFUL = "3 a settle is answered truthfully"


class Answers(Deliveries):
    """Settlements, extensions, expiries and the ends of sessions."""

    def __init__(self, world: World, settings: SubscriptionSettings) -> None:
        super().__init__(world, settings)
        #: sessions that want no more
        self.stopped: set[Any] = set()
        #: leases that live on without their session
        self.detached: dict[bytes, Hand] = {}

    # Sessions

    def connected(self, session: Any) -> None:
        self.sessions[session] = {}
        self._note_largest()
        self.flow.session_changed(session)

    def session_ended(self, session: Any, how: SessionEnd, *, down: bool) -> None:
        """`down`: the subscription says that the handler is."""
        self.catch_up()
        self.world.happened("session ends", self.world.names[session], how.value)
        held = self.sessions.pop(session, {})
        self.flow.session_changed(session)
        self._note_largest()
        if how is SessionEnd.DETACHED:
            self.detached.update(held)
            return
        alone = sum(len(hand.unsaid()) for hand in held.values()) == 1
        for hand in [*held.values()]:
            hand.live = False
            hand.how = how.value
            self.isolation.disturb(hand)
            self._let_go(hand)
            unit = [hand.items[index] for index in hand.unsaid()]
            if how is SessionEnd.LOST:
                self.exercised("a worker dies")
                self._died(unit, alone=alone, down=down)
            else:
                self._came_back(unit, 0.0)

    def _note_largest(self) -> None:
        largest = max((session.hard_bytes for session in self.sessions), default=0)
        self.largest.append((self.world.now, largest))

    def written(self, leases: Sequence[bytes]) -> None:
        for lease in leases:
            hand = self.hands.get(lease)
            if hand is not None and hand.live and hand.written is None:
                hand.written = self.world.now
                hand.deadline = self.world.now + hand.limit

    def lapse(self, hand: Hand) -> None:
        """Its time is over and nobody said anything."""
        hand.live = False
        hand.how = "expired"
        self.exercised("a lease expires")
        self.isolation.disturb(hand)
        self._let_go(hand)
        unit = [hand.items[index] for index in hand.unsaid()]
        if unit:
            for item in unit:
                item.reason = "EXPIRED"
            self._failed(unit, hand.deadline, None, possibly_processed=True, known_down=None)

    def extended(self, lease: bytes, seconds: float, answer: Extended) -> None:
        hand = self.hands.get(lease)
        now = self.world.now
        if hand is None:
            if answer.status is not SettleStatus.UNKNOWN:
                self.world.broken(TRUTHFUL, f"an unknown lease was extended: {answer}")
            return
        if not hand.live or hand.deadline <= now:
            if answer.status is not SettleStatus.STALE:
                self.world.broken(TRUTHFUL, f"{hand}, which ended, was extended: {answer}")
            return
        if answer.status is not None:
            self.world.broken(TRUTHFUL, f"{hand} is live and was not extended: {answer}")
        self.exercised("a lease is extended")
        longest = float(self.settings.lease.max)
        if hand.written is None:
            hand.limit = min(max(hand.limit, seconds), longest)
            return
        hand.deadline = max(hand.deadline, min(now + seconds, hand.written + longest))
        if abs(hand.deadline - now - answer.lease_for) > 1e-6:
            self.world.broken(TRUTHFUL, f"{hand} lasts {hand.deadline - now} s and was said to last {answer.lease_for}")

    # Settlements

    def settled(self, settlement: Settlement, result: SettleResult, *, down: tuple[bool, bool]) -> None:
        """A worker said how it went, and was answered. `down`: the subscription thought that the handler is, before
        and after."""
        world = self.world
        hand = self.hands.get(settlement.lease)
        world.happened("settled", hand or settlement.lease, _said(settlement), result.status.name, result.stale)
        if hand is None:
            if result.status is not SettleStatus.UNKNOWN:
                world.broken(TRUTHFUL, f"a lease of another life was answered {result}")
            self.exercised("a lease from before a restart")
            return
        if result.status is SettleStatus.UNKNOWN:
            world.broken(TRUTHFUL, f"{hand} was answered {result}")
        if (result.status is SettleStatus.STALE) is not bool(result.stale):
            world.broken(TRUTHFUL, f"{hand}: {result} says stale and does not say what, or the other way round")
        self.catch_up()
        stale = {index for each in result.stale for index in range(each.first, each.first + each.count)}
        self.isolation.settled(hand, settlement, down=any(down))
        statements = _statements(len(hand.items), settlement)
        named = {index for indexes, *_ in statements for index in indexes}
        if not stale <= named:
            world.broken(TRUTHFUL, f"{hand}: stale {sorted(stale)} names what was not settled: {sorted(named)}")
        successes = self.success_in_life
        # What succeeds counts for all that is said in one breath, whatever the order of its parts.
        statements.sort(key=lambda statement: statement[1] is not Outcome.ACK)
        for indexes, outcome, reason, retry_after in statements:
            self._statement(hand, indexes, outcome, reason, retry_after, stale, successes, down=down)
        if hand.live and not hand.unsaid():
            hand.live = False
            hand.how = "settled"
            self._let_go(hand)
        self.exercised(TRUTHFUL)

    def _statement(
        self,
        hand: Hand,
        indexes: Sequence[int],
        outcome: Outcome,
        reason: str,
        retry_after: float | None,
        stale: set[int],
        successes: float | None,
        *,
        down: tuple[bool, bool],
    ) -> None:
        world = self.world
        unit: list[Item] = []
        fresh = 0
        for index in indexes:
            item, before = hand.items[index], hand.said[index]
            if before is None:
                fresh += 1
            must, may = self._expected(hand, item, before, outcome)
            if index in stale and must is False:
                world.broken(TRUTHFUL, f"{item} of {hand} ({hand.how or 'live'}) was refused: {outcome.name}")
            if index not in stale and may is False:
                world.broken(TRUTHFUL, f"{item} of {hand} ({hand.how or 'live'}) was accepted: {outcome.name}")
            if index in stale:
                self.exercised("a stale answer")
                if before is None and hand.live:
                    hand.said[index] = "stale"
                continue
            if before is not None:
                self.exercised("a settlement is repeated")
                continue
            if hand.live:
                hand.said[index] = outcome
                unit.append(item)
            elif outcome in (Outcome.ACK, Outcome.REJECT):
                self.exercised("a late settlement is accepted")
                hand.said[index] = outcome
                unit.append(item)
        if unit:
            if outcome is Outcome.NACK and hand.fresh and not retry_after:
                self.failing.add(hand.id)
            self._apply(unit, fresh, outcome, reason, retry_after, successes, down=down)

    def _expected(self, hand: Hand, item: Item, before: object, outcome: Outcome) -> tuple[bool | None, bool | None]:
        """(False: it must not be refused, False: it must not be accepted)."""
        if before == "stale":
            return None, False
        if before is not None:
            return (False, None) if before is outcome else (None, False)
        if item.epoch.phase is Phase.GONE:
            return None, False
        if hand.live:
            return False, None
        if item.hand is not hand or item.done:
            return None, False
        if item.waits or item.can_end or item.must_end or item.rejected or item.epoch.phase is Phase.LEAVING:
            # It may be on its way to the dead letters or to the retry topic, which is as good as given out.
            return None, None
        if any(0 < largest < item.copy.size for _, largest in self.largest):
            # Nobody else may be able to take it: the same.
            return None, None
        return False, None

    def _apply(
        self,
        unit: Sequence[Item],
        stated: int,
        outcome: Outcome,
        reason: str,
        retry_after: float | None,
        successes: float | None,
        *,
        down: tuple[bool, bool],
    ) -> None:
        now = self.world.now
        self.exercised(outcome.name)
        match outcome:
            case Outcome.ACK:
                self.last_success = self.success_in_life = now
                self.failing.clear()
                for item in unit:
                    item.acked = item.copy.acked = True
                    self._settled(item)
            case Outcome.NACK:
                for item in unit:
                    item.reason = reason
                self._failed(
                    unit,
                    now,
                    retry_after,
                    possibly_processed=False,
                    known_down=down,
                    stated=stated,
                    successes=successes,
                )
            case Outcome.RELEASE:
                self._came_back(unit, 0.0)
            case Outcome.OVERLOADED:
                self.flow.overloaded()
                self._came_back(unit, self._shortest(1) if retry_after is None else retry_after)
                for item in unit:
                    item.waits = True
                    item.ready = now + self._longest(retry_after)
            case Outcome.REJECT:
                for item in unit:
                    item.rejected = True

    # What follows

    def _settled(self, item: Item) -> None:
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

    def _perhaps_dropped(self, item: Item) -> None:
        """Lost by choice, unless it is seen again."""
        if not item.dropped:
            item.dropped = True
            item.epoch.held_records -= 1
            item.epoch.held_bytes -= item.copy.size

    def _let_go(self, hand: Hand) -> None:
        self.live.pop(hand.id, None)
        held = self.sessions.get(hand.session)
        if held is not None:
            held.pop(hand.id, None)
            self.flow.session_changed(hand.session)

    def _came_back(self, unit: Sequence[Item], after: float) -> None:
        for item in unit:
            item.not_before = item.ready = self.world.now + after

    def _died(self, unit: Sequence[Item], *, alone: bool, down: bool) -> None:
        """Its worker is gone. Only a record that was in its hands with nothing else can be blamed for that, and none
        while the handler is down: what fails then says nothing about a record."""
        now = self.world.now
        for item in unit:
            item.failures += 1
            item.counted_failures += not down
            item.worker_crashes += not down
            item.doubt = Doubt.MUST
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
                    self._perhaps_dropped(item)

    def _failed(
        self,
        unit: Sequence[Item],
        now: float,
        retry_after: float | None,
        *,
        possibly_processed: bool,
        known_down: tuple[bool, bool] | None,
        stated: int | None = None,
        successes: float | None = None,
    ) -> None:
        """A nack or an expiry. Only a record that the worker can mean alone is counted; others are looked for first."""
        for item in unit:
            if item.first_failed is None:
                item.first_failed = now
            if possibly_processed:
                item.doubt = Doubt.MUST
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
            # What is said in one breath may be taken in any order, so only earlier successes are sure to count.
            item.must_end = self._others_succeed(item, None if successes is None else successes - 0.003)
        if retry.exhausted is Exhausted.DROP and item.can_end:
            self._perhaps_dropped(item)

    def _success_at_most(self) -> float | None:
        # A parked record knows only to the millisecond when it first failed.
        return None if self.last_success is None else self.last_success + 0.003

    def _others_succeed(self, item: Item, success: float | None) -> bool:
        """An outage is not poison: a record is given up only if something succeeded since it first failed."""
        if not self.settings.outage.enabled:
            return True
        return success is not None and item.first_failed is not None and success >= item.first_failed

    flow: Flow

    def _longest(self, retry_after: float | None) -> float:
        return float(self.settings.retry.max) if retry_after is None else max(retry_after, self.settings.retry.max)

    def _shortest(self, failures: int) -> float:
        retry = self.settings.retry
        full = min(float(retry.max), float(retry.first) * retry.factor ** max(0, failures - 1))
        return full * (1.0 - retry.jitter)


def _statements(records: int, settlement: Settlement) -> list[tuple[list[int], Outcome, str, float | None]]:
    """What is said of which records: each part is one statement, and so is the word for all the others."""
    out = []
    named: set[int] = set()
    for part in settlement.parts:
        indexes = list(range(part.first, part.first + part.count))
        named.update(indexes)
        out.append((indexes, part.outcome, part.reason, part.retry_after))
    if settlement.outcome is not None:
        rest = [index for index in range(records) if index not in named]
        if rest:
            out.append((rest, settlement.outcome, settlement.reason, settlement.retry_after))
    return out


def _said(settlement: Settlement) -> str:
    whole = settlement.outcome.name if settlement.outcome else "partial"
    parts = [(part.first, part.count, part.outcome.name, part.retry_after) for part in settlement.parts]
    return f"{whole} {settlement.retry_after} {parts}"
