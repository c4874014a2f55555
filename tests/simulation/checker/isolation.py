"""Checks how many calls it takes to find the bad records of a batch."""

from collections.abc import Sequence
from math import ceil, log2
from typing import TYPE_CHECKING

from sidecar.model.records import ClosedBy, Order, Outcome, Settlement
from tests.simulation.checker.promises import Promise
from tests.simulation.checker.state import Grant, TrackedRecord

if TYPE_CHECKING:
    from tests.simulation.world import World


class Search:
    """A batch, and the deliveries of its parts until its bad records are alone."""

    def __init__(self, items: Sequence[TrackedRecord]) -> None:
        self.records = len(items)
        self.bad = sum(item.copy.kind == "poison" for item in items)
        self.calls = 1
        #: something other than a whole batch that succeeds or fails happened in between
        self.disturbed = False

    @property
    def most(self) -> int:
        return 2 * self.bad * ceil(log2(self.records)) + 1 if self.records > 1 else 1


class Isolation:
    """k bad records of n take at most 2 k log2(n) + 1 calls, if nothing else goes wrong meanwhile."""

    def __init__(self, world: "World", order: Order) -> None:
        self._world = world
        # With order `key` a batch is cut between keys, which need not be in the middle.
        self._applies = order is not Order.KEY
        self._searches: dict[bytes, Search] = {}

    def delivered(self, grant: Grant, closed_by: ClosedBy) -> None:
        """Call before the records are attributed to this grant."""
        if not self._applies:
            return
        before = {item.grant.id: item.grant for item in grant.items if item.grant is not None}
        if not before:
            if closed_by is not ClosedBy.PROBE:
                self._searches[grant.id] = Search(grant.items)
            return
        parent = next(iter(before.values()))
        middle = (len(parent.items) + 1) // 2
        if parent.to_be_split and len(before) == 1 and len(grant.items) > middle:
            self._world.broken(Promise.POISON, f"{grant} has {len(grant.items)} of the {len(parent.items)} that failed")
        search = self._searches.get(parent.id)
        if search is None or len(parent.items) == 1:
            return
        half = len(grant.items) in (middle, len(parent.items) - middle)
        if len(before) > 1 or not half or closed_by is ClosedBy.PROBE:
            for each in before.values():
                self.disturb(each)
            return
        self._searches[grant.id] = search
        search.calls += 1
        if search.disturbed:
            return
        self._world.exercised("a failing batch is split")
        if search.calls > search.most:
            text = f"{search.calls} calls for {search.bad} bad ones of {search.records}, at most {search.most}"
            self._world.broken(Promise.POISON, text)

    def settled(self, grant: Grant, settlement: Settlement, *, down: bool) -> None:
        """`down`: the subscription considers the handler down, before or after."""
        grant.to_be_split = (
            not down
            and grant.live
            and settlement.outcome is Outcome.NACK
            and not settlement.parts
            and not settlement.retry_after
            and len(grant.unsettled()) == len(grant.items)
        )
        bad = any(item.copy.kind == "poison" for item in grant.items)
        whole = Outcome.NACK if bad else Outcome.ACK
        if settlement.parts or settlement.outcome is not whole or settlement.retry_after:
            self.disturb(grant)

    def disturb(self, grant: Grant) -> None:
        search = self._searches.get(grant.id)
        if search is not None:
            search.disturbed = True
