"""Plausible mistakes, made in the shipped code while a simulation runs. Each must be found."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from sidecar.assigning import Assigning
from sidecar.books import Books
from sidecar.brokers.base import Revoked
from sidecar.committing import Committing
from sidecar.dispatcher import Dispatcher
from sidecar.lanes import LanePhase, LaneState
from sidecar.leases import Leases
from sidecar.ledger import Ledger
from sidecar.memory import Memory
from sidecar.model import Commit, Run, Settlement
from sidecar.ordering import KeyOrder, LaneOrder, NoOrder
from sidecar.retry import OutageGuard
from sidecar.settling import Settling
from sidecar.spans import Span
from sidecar.subscription import Subscription
from sidecar.verdicts import Failed, Verdicts


@dataclass(frozen=True, slots=True)
class Mutation:
    #: the number of the promise that it breaks
    promise: int
    mistake: str
    where: type
    method: str
    #: makes the wrong method from the right one
    spoil: Callable[[Any], Any]

    def made(self) -> Any:
        """A context in which the shipped code has this mistake."""
        return patch.object(self.where, self.method, self.spoil(getattr(self.where, self.method)))

    def is_found_by(self, violation: str) -> bool:
        """Not by falling over: by a promise that does not hold."""
        return violation.partition(" ")[0].isdigit() or violation.startswith("the ")

    def __str__(self) -> str:
        return f"{self.promise} {self.mistake}"


def _one_too_many(settle: Any) -> Any:
    def wrong(self: Ledger, run: Run) -> None:
        settle(self, Run(run.start, run.stop + 1))

    return wrong


def _settled_before_written(dead_letter: Any) -> Any:
    def wrong(self: Settling, spans: Iterable[Span], reason: str, worker: str) -> None:
        spans = list(spans)
        dead_letter(self, spans, reason, worker)
        for span in spans:
            span.lane.ledger.settle(span.run)

    return wrong


def _never_doubtful(failed: Any) -> Any:
    def wrong(self: Verdicts, what: Failed, now: float, **more: Any) -> Any:
        return failed(self, what, now, **{**more, "doubtful": False})

    return wrong


def _lost_is_released(abandoned: Any) -> Any:
    def wrong(self: Verdicts, what: Failed, *more: Any, **named: Any) -> Any:
        return self.released(what)

    return wrong


def _no_boot_id(init: Any) -> Any:
    def wrong(self: Leases[Any], prefix: bytes) -> None:
        init(self, bytes(len(prefix)))

    return wrong


def _accepts_everything(settle: Any) -> Any:
    def wrong(self: Settling, settlement: Settlement, now: float) -> Any:
        answer = settle(self, settlement, now)
        return answer._replace(status=type(answer.status).SETTLED, stale=())

    return wrong


def _lane_does_not_wait(take: Any) -> Any:
    def wrong(self: LaneOrder, records: int, size: int, before: int, *, force: bool = True) -> list[Span]:
        return NoOrder.take(self, records, size, before, force=force)

    return wrong


def _key_does_not_wait(eligible: Any) -> Any:
    def wrong(self: KeyOrder, spans: Sequence[Span]) -> tuple[list[Span], list[Span]]:
        return list(spans), []

    return wrong


def _commit_wakes_nobody(committed: Any) -> Any:
    def wrong(self: Subscription, state: LaneState) -> None:
        pass

    return wrong


def _settled_wakes_nobody(wake: Any) -> Any:
    def wrong(self: Dispatcher, lane: LaneState) -> None:
        if not lane.in_flight and not lane.waiting:
            wake(self, lane)

    return wrong


def _never_full(full: Any) -> Any:
    def wrong(self: Memory, lanes: Iterable[Any]) -> set[Any]:
        return set()

    return wrong


def _revoked_goes_unsaid(leave: Any) -> Any:
    async def wrong(self: Assigning, states: Sequence[LaneState], event: Revoked) -> None:
        await self._source.release(event.lanes)

    return wrong


def _lost_is_forgotten_but_alive(lane_is_gone: Any) -> Any:
    def wrong(self: Books, state: LaneState) -> Any:
        touched = lane_is_gone(self, state)
        state.phase = LanePhase.LEAVING
        return touched

    return wrong


def _beyond_is_forgotten(committable: Any) -> Any:
    def wrong(self: Ledger, *, with_beyond: bool) -> Commit | None:
        commit = committable(self, with_beyond=with_beyond)
        return None if commit is None else Commit(commit.position)

    return wrong


def _delivers_while_draining(drain: Any) -> Any:
    async def wrong(self: Subscription, deadline: float) -> None:
        task = drain(self, deadline)
        self._delivering.__class__.stopped = property(lambda self: False, lambda self, value: None)  # type: ignore[assignment]
        try:
            await task
        finally:
            del self._delivering.__class__.stopped

    return wrong


def _last_commit_is_left_out(commit: Any) -> Any:
    async def wrong(self: Committing, lanes: Iterable[LaneState]) -> bool:
        return False if self._books.draining else await commit(self, lanes)

    return wrong


def _company_counts(failed: Any) -> Any:
    def wrong(self: Verdicts, what: Failed, now: float, **more: Any) -> Any:
        moves = []
        for span in what.spans:
            for single in span.singles():
                moves += failed(self, what._replace(spans=[single], meant=1), now, **more)
        return moves

    return wrong


def _always_gives_up(may_give_up: Any) -> Any:
    def wrong(self: OutageGuard, first_failed: float | None) -> bool:
        return True

    return wrong


def _never_down(failure: Any) -> Any:
    def wrong(self: OutageGuard, origin: int, now: float) -> bool:
        return False

    return wrong


MUTATIONS = (
    Mutation(1, "settling a record settles the next one too", Ledger, "settle", _one_too_many),
    Mutation(1, "a dead letter counts before it is written", Settling, "_dead_letter", _settled_before_written),
    Mutation(2, "an expired lease is not flagged as possibly processed", Verdicts, "failed", _never_doubtful),
    Mutation(2, "a lost session does not count as an attempt", Verdicts, "abandoned", _lost_is_released),
    Mutation(3, "leases of another life are taken for this one's", Leases, "__init__", _no_boot_id),
    Mutation(3, "every settlement is said to count", Settling, "settle", _accepts_everything),
    Mutation(4, "a lane does not wait for the batch before", LaneOrder, "take", _lane_does_not_wait),
    Mutation(4, "a retry does not wait for earlier records of its key", KeyOrder, "eligible", _key_does_not_wait),
    Mutation(
        5, "a lane that waited for its window is not looked at again", Subscription, "_committed", _commit_wakes_nobody
    ),
    Mutation(6, "a lane feeds one worker at a time", Dispatcher, "wake", _settled_wakes_nobody),
    Mutation(7, "no lane is ever paused", Memory, "full", _never_full),
    Mutation(8, "a revoked lane is let go, and nobody is told", Assigning, "_leave", _revoked_goes_unsaid),
    Mutation(8, "a lane that is gone still takes settlements", Books, "lane_is_gone", _lost_is_forgotten_but_alive),
    Mutation(9, "acks beyond the position are not told to the broker", Ledger, "committable", _beyond_is_forgotten),
    Mutation(11, "a failing batch counts against each of its records", Verdicts, "failed", _company_counts),
    Mutation(12, "a record is given up while nothing else succeeds", OutageGuard, "may_give_up", _always_gives_up),
    Mutation(12, "an outage is never noticed", OutageGuard, "failure", _never_down),
)
