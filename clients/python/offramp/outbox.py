"""What is to be said to the sidecar, and what it has not answered yet."""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from offramp import settlements
from offramp.answers import Answer, SettleResult, SettleStatus, merge, read_result
from offramp.batches import Batch
from offramp.errors import ProtocolBroken
from offramp.options import OnResult
from offramp.v1 import consumer_pb2 as pb
from offramp.v1 import record_pb2

logger = logging.getLogger("offramp")

#: bytes of settlements in a request: beside so many, gRPC's cost per message does not matter
_MOST_SETTLED = 1 << 20
_MOST_EXTENDED = 500


class Settling:
    """A settlement until it is answered."""

    __slots__ = ("answer", "batch", "ours", "pieces", "results", "settlement")

    def __init__(self, batch: Batch, settlement: record_pb2.Settlement, *, ours: bool) -> None:
        self.batch = batch
        self.settlement = settlement
        self.ours = ours
        self.answer: Answer[SettleResult] = Answer()
        #: how many travel instead of one that was too large, and what was answered to them; all share one list
        self.pieces = 1
        self.results: list[SettleResult] | None = None

    def split(self, most_bytes: int) -> "list[Settling]":
        pieces = settlements.split(self.settlement, len(self.batch), most_bytes)
        self.results = []
        out = []
        for piece in pieces:
            one = Settling(self.batch, piece, ours=self.ours)
            one.answer, one.results, one.pieces = self.answer, self.results, len(pieces)
            out.append(one)
        return out


class Extending(NamedTuple):
    """An extension until it is answered."""

    extension: record_pb2.Extension
    answer: Answer[float]


class Outbox:
    """`settle` and `extend` may be called by any thread; everything else on the event loop.

    A settlement stays here until it is answered: whatever was not when a connection broke is said again on the next
    one, which is harmless. Answers come in the order of the settlements.
    """

    def __init__(self, on_result: OnResult | None) -> None:
        self._on_result = on_result
        self._settlements: deque[Settling] = deque()
        self._unanswered: deque[Settling] = deque()
        self._extensions: deque[Extending] = deque()
        self._unextended: deque[Extending] = deque()

    def settle(self, settling: Settling) -> None:
        self._settlements.append(settling)

    def extend(self, extending: Extending) -> None:
        self._extensions.append(extending)

    @property
    def answered_all(self) -> bool:
        return not (self._settlements or self._unanswered)

    def next_request(self, most_bytes: int, on_settled: Callable[[Batch], None]) -> pb.ConsumeRequest | None:
        """What one request to a sidecar that takes `most_bytes` can hold, or None if there is nothing to say.

        `on_settled` is told of each batch of which nothing is left to settle.
        """
        if not self._settlements and not self._extensions:
            return None
        request = pb.ConsumeRequest()
        # The other half is more than enough for tags and extensions.
        most_settled = min(_MOST_SETTLED, most_bytes // 2)
        room = most_settled
        while self._settlements:
            settling = self._settlements[0]
            size = settling.settlement.ByteSize()
            if size > most_settled:
                self._settlements.popleft()
                self._settlements.extendleft(reversed(settling.split(most_settled)))
                continue
            if size > room:
                break
            room -= size
            self._settlements.popleft()
            self._unanswered.append(settling)
            request.settlements.append(settling.settlement)
            if settling.batch.settled:
                on_settled(settling.batch)
        while self._extensions and len(request.extensions) < _MOST_EXTENDED:
            extending = self._extensions.popleft()
            self._unextended.append(extending)
            request.extensions.append(extending.extension)
        return request

    def answered(self, messages: Iterable[record_pb2.SettleResult]) -> None:
        """Raises `ProtocolBroken` for an answer to something else than what is next."""
        uncounted: list[tuple[Settling, SettleResult]] = []
        for message in messages:
            if not self._unanswered or self._unanswered[0].settlement.lease != message.lease:
                raise ProtocolBroken(f"the sidecar answered for lease {message.lease.hex()}, which was not next")
            settling = self._unanswered.popleft()
            result = read_result(message)
            if not result.settled and not settling.ours:
                uncounted.append((settling, result))
            self._conclude(settling, result)
        if uncounted:
            _warn(uncounted)

    def extended(self, messages: Iterable[record_pb2.ExtendResult]) -> None:
        """Raises `ProtocolBroken` for an answer to something else than what is next."""
        for message in messages:
            if not self._unextended or self._unextended[0].extension.lease != message.lease:
                raise ProtocolBroken(f"the sidecar extended lease {message.lease.hex()}, which was not next")
            answer = self._unextended.popleft().answer
            if message.status:
                logger.warning("the lease %s could not be extended: it is lost", message.lease.hex())
            answer.resolve(0.0 if message.status else message.lease_for_ms / 1_000)

    def disconnected(self) -> None:
        """The connection broke. Settlements are said again; leases of the lost session cannot be extended."""
        self._settlements.extendleft(reversed(self._unanswered))
        self._unanswered.clear()
        self._give_up_extensions()

    def give_up(self, why: str) -> None:
        """There is no further connection: whoever waits for an answer is told that there will be none."""
        self.disconnected()
        result = SettleResult(SettleStatus.UNANSWERED, detail=why)
        uncounted: list[tuple[Settling, SettleResult]] = []
        while self._settlements:
            settling = self._settlements.popleft()
            if not settling.ours:
                uncounted.append((settling, result))
            self._conclude(settling, result)
        if uncounted:
            _warn(uncounted)

    def _give_up_extensions(self) -> None:
        for extensions in (self._unextended, self._extensions):
            while extensions:
                extensions.popleft().answer.resolve(0.0)

    def _conclude(self, settling: Settling, result: SettleResult) -> None:
        if settling.results is not None:
            settling.results.append(result)
            if len(settling.results) < settling.pieces:
                return
            result = merge(settling.results)
        settling.answer.resolve(result)
        if self._on_result is not None:
            try:
                self._on_result(settling.batch, result)
            except Exception:
                logger.exception("on_result failed")


def _warn(uncounted: list[tuple[Settling, SettleResult]]) -> None:
    """One line, however many there are: after a restart of the sidecar all workers' leases are gone at once."""
    settling, result = uncounted[0]
    logger.warning(
        "the sidecar did not count %d settlement(s), whose records may be delivered again; the first is %r: %s%s",
        len(uncounted),
        settling.batch,
        result.status.name,
        f" ({result.detail})" if result.detail else "",
    )
