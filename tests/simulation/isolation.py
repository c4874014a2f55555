"""How many calls it costs to find the bad records of a batch."""

from collections.abc import Sequence
from math import ceil, log2
from typing import TYPE_CHECKING

from sidecar.model.records import ClosedBy, Order, Outcome, Settlement
from tests.simulation.items import Hand, Item

if TYPE_CHECKING:
    from tests.simulation.world import World

ISOLATED = "11 poison is isolated"


class Search:
    """A batch, and all deliveries of parts of it until its bad records are alone."""

    __slots__ = ("bad", "calls", "disturbed", "records")

    def __init__(self, items: Sequence[Item]) -> None:
        self.records = len(items)
        self.bad = sum(item.copy.kind == "poison" for item in items)
        self.calls = 1
        #: something else than a whole batch that succeeds or fails came in between
        self.disturbed = False

    @property
    def most(self) -> int:
        return 2 * self.bad * ceil(log2(self.records)) + 1 if self.records > 1 else 1


class Isolation:
    """k bad records of n cost at most 2 k log2(n) + 1 calls, if nothing else goes wrong meanwhile."""

    def __init__(self, world: "World", order: Order) -> None:
        self._world = world
        # With order `key` a batch is cut between keys, which need not be in the middle.
        self._applies = order is not Order.KEY
        self._searches: dict[bytes, Search] = {}

    def delivered(self, hand: Hand, closed_by: ClosedBy) -> None:
        """Called before the records are taken to be in this hand."""
        if not self._applies:
            return
        before = {item.hand.id: item.hand for item in hand.items if item.hand is not None}
        if not before:
            if closed_by is not ClosedBy.PROBE:
                self._searches[hand.id] = Search(hand.items)
            return
        parent = next(iter(before.values()))
        middle = (len(parent.items) + 1) // 2
        if parent.to_be_split and len(before) == 1 and len(hand.items) > middle:
            self._world.broken(ISOLATED, f"{hand} has {len(hand.items)} of the {len(parent.items)} that failed")
        search = self._searches.get(parent.id)
        if search is None or len(parent.items) == 1:
            return
        half = len(hand.items) in (middle, len(parent.items) - middle)
        if len(before) > 1 or not half or closed_by is ClosedBy.PROBE:
            for each in before.values():
                self.disturb(each)
            return
        self._searches[hand.id] = search
        search.calls += 1
        if search.disturbed:
            return
        self._world.exercised("a failing batch is split")
        if search.calls > search.most:
            text = f"{search.calls} calls for {search.bad} bad ones of {search.records}, at most {search.most}"
            self._world.broken(ISOLATED, text)

    def settled(self, hand: Hand, settlement: Settlement, *, down: bool) -> None:
        """`down`: the subscription thinks that the handler is, before or after."""
        hand.to_be_split = (
            not down
            and hand.live
            and settlement.outcome is Outcome.NACK
            and not settlement.parts
            and not settlement.retry_after
            and len(hand.unsaid()) == len(hand.items)
        )
        bad = any(item.copy.kind == "poison" for item in hand.items)
        whole = Outcome.NACK if bad else Outcome.ACK
        if settlement.parts or settlement.outcome is not whole or settlement.retry_after:
            self.disturb(hand)

    def disturb(self, hand: Hand) -> None:
        search = self._searches.get(hand.id)
        if search is not None:
            search.disturbed = True
