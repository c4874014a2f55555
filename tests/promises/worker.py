"""A worker that a test controls."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sidecar.model.records import (
    ClientInfo,
    Credit,
    Delivery,
    Lane,
    Notice,
    NoticeKind,
    Outcome,
    Part,
    Record,
    SessionEnd,
    Settlement,
    SettleResult,
    SettleStatus,
)
from sidecar.model.wire import decode_frame
from sidecar.subscription.session import Consumer
from sidecar.subscription.subscription import Subscription
from tests.promises.adjustable_time import now, until
from tests.promises.audit import Audit, RecordId

#: the value of records of `Environment.round_trip`: every worker acks them, and no test sees them
ROUND_TRIP = b"around"

Handler = Callable[["Batch"], object]


@dataclass(eq=False)
class Batch:
    """A delivery as its worker sees it."""

    subscription: Subscription
    audit: Audit
    delivery: Delivery
    records: list[Record]
    #: time of arrival on the clock of the loop
    at: float
    #: the results of each settle
    results: list[SettleResult] = field(default_factory=list)

    @property
    def values(self) -> list[bytes]:
        return [record.value or b"" for record in self.records]

    @property
    def record_ids(self) -> list[RecordId]:
        return [(Lane(self.delivery.topic, record.lane), record.position) for record in self.records]

    @property
    def lease(self) -> bytes:
        return self.delivery.lease

    @property
    def attempts(self) -> list[int]:
        """The attempt of each record."""
        attempts = [1] * len(self.records)
        for told in self.delivery.redeliveries:
            attempts[told.first : told.first + told.count] = [told.attempt] * told.count
        return attempts

    @property
    def attempt(self) -> int:
        """The attempt of all records, which must be equal."""
        (attempt,) = set(self.attempts)
        return attempt

    @property
    def possibly_processed_flags(self) -> list[bool]:
        """Of each record."""
        possibly_processed_flags = [False] * len(self.records)
        for told in self.delivery.redeliveries:
            possibly_processed_flags[told.first : told.first + told.count] = [told.possibly_processed] * told.count
        return possibly_processed_flags

    @property
    def possibly_processed(self) -> bool:
        """The flag of all records, which must be equal."""
        (doubt,) = set(self.possibly_processed_flags)
        return doubt

    def ack(self) -> SettleResult:
        return self.settle(Outcome.ACK)

    def nack(self, reason: str = "", retry_after: float | None = None) -> SettleResult:
        return self.settle(Outcome.NACK, reason=reason, retry_after=retry_after)

    def release(self) -> SettleResult:
        return self.settle(Outcome.RELEASE)

    def reject(self, reason: str = "") -> SettleResult:
        return self.settle(Outcome.REJECT, reason=reason)

    def settle(
        self,
        outcome: Outcome | None,
        parts: Sequence[Part] = (),
        *,
        reason: str = "",
        retry_after: float | None = None,
    ) -> SettleResult:
        settlement = Settlement(self.lease, outcome, reason, retry_after, tuple(parts))
        (result,) = self.subscription.settle([settlement])
        self.results.append(result)
        if result.status is not SettleStatus.UNKNOWN:
            outcomes: list[Outcome | None] = [outcome] * len(self.records)
            for part in parts:
                outcomes[part.first : part.first + part.count] = [part.outcome] * part.count
            for stale in result.stale:
                outcomes[stale.first : stale.first + stale.count] = [None] * stale.count
            acked = (
                record_id for record_id, said in zip(self.record_ids, outcomes, strict=True) if said is Outcome.ACK
            )
            self.audit.acked.update(acked)
        return result


class Worker(Consumer):
    """One session. Batches go to the handler, if there is one; `next` returns them in order in any case."""

    def __init__(
        self,
        subscription: Subscription,
        audit: Audit,
        *,
        credit: int = 1,
        lease: float | None = None,
        max_message_bytes: int = 4 << 20,
        name: str = "worker",
        handler: Handler | None = None,
    ) -> None:
        self.subscription = subscription
        self.handler = handler
        #: all that were delivered
        self.batches: list[Batch] = []
        self.notices: list[Notice] = []
        self._audit = audit
        self._taken = 0
        self.session = subscription.connect(
            self,
            client=ClientInfo(language="python", pid=1, name=name),
            credit=Credit(credit),
            max_message_bytes=max_message_bytes,
            lease=lease,
        )

    def deliver(self, delivery: Delivery) -> None:
        records = [decode_frame(frame) for frame in delivery.frames]
        batch = Batch(self.subscription, self._audit, delivery, records, now())
        if records[0].value != ROUND_TRIP:
            self.batches.append(batch)
        # As a stream does: delivered in one turn of the loop, written in another.
        asyncio.get_running_loop().call_soon(self._got, batch)

    def notify(self, notice: Notice) -> None:
        self.notices.append(notice)

    def notices_of(self, kind: NoticeKind) -> list[Notice]:
        return [notice for notice in self.notices if notice.kind is kind]

    @property
    def unread(self) -> int:
        """How many batches `next` has not returned yet."""
        return len(self.batches) - self._taken

    async def next(self) -> Batch:
        """The next batch, whenever it was delivered."""
        await until(lambda: self.unread, "a batch comes")
        self._taken += 1
        return self.batches[self._taken - 1]

    async def take(self, batches: int) -> list[Batch]:
        return [await self.next() for _ in range(batches)]

    def forget(self) -> None:
        """Drop the batches delivered so far."""
        self.batches.clear()
        self._taken = 0

    def die(self) -> None:
        """End the session as kill -9 does."""
        self.session.end(SessionEnd.LOST)

    def leave(self) -> None:
        self.session.end(SessionEnd.ORDERLY)

    def _got(self, batch: Batch) -> None:
        self.subscription.written([batch.lease])
        if batch.records[0].value == ROUND_TRIP:
            batch.ack()
        elif self.handler is not None and not self.session.ended:
            self.handler(batch)
