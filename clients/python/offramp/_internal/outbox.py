"""What is to be sent to the sidecar, and what was sent and is not answered yet."""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from offramp._internal import settlements
from offramp.answers import SETTLED, Answer, SettleResult, SettleStatus, merge, read_result
from offramp.batch import Batch
from offramp.errors import ProtocolBroken
from offramp.options import OnResult
from offramp.outcomes import ACK, reason_text
from offramp.v1 import consumer_pb2 as pb
from offramp.v1 import record_pb2

logger = logging.getLogger("offramp")

#: bytes of settlements in a request; beyond this, gRPC's cost for each message no longer matters
_MAX_SETTLEMENT_BYTES = 1 << 20
#: extensions in a request
_MAX_EXTENSIONS = 500


class Wakeup:
    """Wakes the one task that writes the stream: from any thread, on the loop it was made on.

    Calls before the task runs count as one: that is how the settlements of many workers share a request.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._event = asyncio.Event()
        #: a wake-up from another thread is scheduled, so that further threads need not wake the loop again
        self._scheduled = False

    def wake(self) -> None:
        if threading.get_ident() == self._thread:
            self._event.set()
        elif not self._scheduled:
            self._scheduled = True
            # A closed loop has no task to wake.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        """Returns after a call of `wake`. Look for work after this: what was queued before the call is there."""
        await self._event.wait()
        self._event.clear()
        # Cleared before the task looks: a thread that still sees it set has queued its work already.
        self._scheduled = False


class PendingSettlement:
    """A settlement until it is answered. An ack of the whole batch is None, and becomes a message only if it must."""

    __slots__ = ("_settlement", "answer", "automatic", "batch", "pieces", "results")

    def __init__(self, batch: Batch, settlement: record_pb2.Settlement | None, *, automatic: bool) -> None:
        self.batch = batch
        self._settlement = settlement
        self.automatic = automatic
        self.answer: Answer[SettleResult] = Answer()
        #: number of pieces that are sent instead of a settlement that is too large, and their results so far (one list
        #: for all pieces)
        self.pieces = 1
        self.results: list[SettleResult] | None = None

    @property
    def settlement(self) -> record_pb2.Settlement:
        return settlements.whole(self.batch.lease, ACK, {}) if self._settlement is None else self._settlement

    def encoded(self) -> bytes:
        """As a request of its own; requests may be joined."""
        if self._settlement is None:
            return settlements.ack_as_request(self.batch.lease)
        return settlements.as_request(self._settlement)

    def too_large(self, max_bytes: int, max_parts: int) -> bool:
        one = self._settlement
        return one is not None and (one.ByteSize() > max_bytes or len(one.parts) > max_parts)

    def split(self, max_bytes: int, max_parts: int) -> "list[PendingSettlement]":
        pieces = settlements.split(self.settlement, len(self.batch), max_bytes, max_parts)
        self.results = []
        out = []
        for piece in pieces:
            one = PendingSettlement(self.batch, piece, automatic=self.automatic)
            one.answer, one.results, one.pieces = self.answer, self.results, len(pieces)
            out.append(one)
        return out


class PendingExtension(NamedTuple):
    """An extension until it is answered."""

    extension: record_pb2.Extension
    answer: Answer[float]


class Outbox:
    """`settle` and `extend` may be called by any thread; everything else on the event loop.

    A settlement stays here until it is answered: what was not answered when a connection broke is sent again on the
    next one, which does no harm. Answers come in the order of the settlements.
    """

    def __init__(self, on_result: OnResult | None) -> None:
        self._on_result = on_result
        self._settlements: deque[PendingSettlement] = deque()
        self._sent_settlements: deque[PendingSettlement] = deque()
        self._extensions: deque[PendingExtension] = deque()
        self._sent_extensions: deque[PendingExtension] = deque()

    def settle(self, pending: PendingSettlement) -> None:
        self._settlements.append(pending)

    def extend(self, pending: PendingExtension) -> None:
        self._extensions.append(pending)

    @property
    def answered_all(self) -> bool:
        return not (self._settlements or self._sent_settlements)

    def next_request(self, limits: pb.Limits) -> bytes | None:
        """One encoded request within the sidecar's limits; None if there is nothing to send."""
        if not self._settlements and not self._extensions:
            return None
        parts: list[bytes] = []
        # The other half is more than enough for tags and extensions.
        limit = min(_MAX_SETTLEMENT_BYTES, limits.max_request_bytes // 2)
        entries = limits.max_request_entries
        room = limit
        while self._settlements and len(parts) < entries:
            pending = self._settlements[0]
            if pending.too_large(limit, entries):
                self._settlements.popleft()
                self._settlements.extendleft(reversed(pending.split(limit, entries)))
                continue
            encoded = pending.encoded()
            if parts and len(encoded) > room:
                break
            room -= len(encoded)
            self._settlements.popleft()
            self._sent_settlements.append(pending)
            parts.append(encoded)
        if self._extensions:
            parts.append(self._next_extensions())
        return b"".join(parts)

    def _next_extensions(self) -> bytes:
        request = pb.ConsumeRequest()
        while self._extensions and len(request.extensions) < _MAX_EXTENSIONS:
            extension = self._extensions.popleft()
            self._sent_extensions.append(extension)
            request.extensions.append(extension.extension)
        return request.SerializeToString()

    def on_results(self, messages: Iterable[record_pb2.SettleResult]) -> None:
        """Raises `ProtocolBroken` for a result that is not that of the oldest unanswered settlement."""
        uncounted: list[tuple[PendingSettlement, SettleResult]] = []
        for message in messages:
            if not self._sent_settlements or self._sent_settlements[0].batch.lease != message.lease:
                raise ProtocolBroken(f"the sidecar answered for lease {message.lease.hex()}, which was not next")
            pending = self._sent_settlements.popleft()
            result = read_result(message)
            if result is not SETTLED and not pending.automatic:
                uncounted.append((pending, result))
                if result.status is SettleStatus.REFUSED:
                    self._nack_instead(pending, result)
            self._resolve(pending, result)
        if uncounted:
            _warn(uncounted)

    def _nack_instead(self, pending: PendingSettlement, result: SettleResult) -> None:
        """What the sidecar refuses stays leased, and nobody else will settle it."""
        nack = settlements.nacked(pending.settlement, reason_text(f"REFUSED: {result.detail}"))
        self.settle(PendingSettlement(pending.batch, nack, automatic=True))

    @property
    def empty(self) -> bool:
        """Nothing waits to be sent."""
        return not (self._settlements or self._extensions)

    def on_extended(self, messages: Iterable[record_pb2.ExtendResult]) -> None:
        """Raises `ProtocolBroken` for a result that is not that of the oldest unanswered extension."""
        for message in messages:
            if not self._sent_extensions or self._sent_extensions[0].extension.lease != message.lease:
                raise ProtocolBroken(f"the sidecar extended lease {message.lease.hex()}, which was not next")
            answer = self._sent_extensions.popleft().answer
            extended = message.status == record_pb2.EXTEND_STATUS_EXTENDED
            if not extended:
                logger.warning("the lease %s could not be extended: it is lost", message.lease.hex())
            answer.resolve(message.lease_for_ms / 1_000 if extended else 0.0)

    def leases(self) -> set[bytes]:
        """Those with a settlement that is not answered yet."""
        return {
            pending.batch.lease for queue in (self._settlements, self._sent_settlements) for pending in queue.copy()
        }

    def on_disconnect(self) -> None:
        """The connection broke. What was not answered is sent again."""
        self._settlements.extendleft(reversed(self._sent_settlements))
        self._sent_settlements.clear()
        self._extensions.extendleft(reversed(self._sent_extensions))
        self._sent_extensions.clear()

    def on_session_end(self) -> None:
        """Leases end with their session, and cannot be extended any more."""
        self.on_disconnect()
        while self._extensions:
            self._extensions.popleft().answer.resolve(0.0)

    def give_up(self, why: str) -> None:
        """There is no further connection: resolves every answer as unanswered."""
        self.on_session_end()
        result = SettleResult(SettleStatus.UNANSWERED, detail=why)
        uncounted: list[tuple[PendingSettlement, SettleResult]] = []
        while self._settlements:
            pending = self._settlements.popleft()
            if not pending.automatic:
                uncounted.append((pending, result))
            self._resolve(pending, result)
        if uncounted:
            _warn(uncounted)

    def _resolve(self, pending: PendingSettlement, result: SettleResult) -> None:
        if pending.results is not None:
            pending.results.append(result)
            if len(pending.results) < pending.pieces:
                return
            result = merge(pending.results)
        pending.answer.resolve(result)
        if self._on_result is not None:
            try:
                self._on_result(pending.batch, result)
            except Exception:
                logger.exception("on_result failed")


def _warn(uncounted: list[tuple[PendingSettlement, SettleResult]]) -> None:
    """One line, however many there are: after a restart of the sidecar all workers' leases are gone at once."""
    pending, result = uncounted[0]
    logger.warning(
        "the sidecar did not count %d settlement(s), whose records may be delivered again; the first is %r: %s%s",
        len(uncounted),
        pending.batch,
        result.status.name,
        f" ({result.detail})" if result.detail else "",
    )
