"""Turns outcomes of a batch's records into the settlements that are sent. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache

from offramp.outcomes import ACK, Outcome
from offramp.v1 import consumer_pb2
from offramp.v1 import record_pb2 as pb


def whole(lease: bytes, outcome: Outcome, marks: Mapping[int, Outcome]) -> pb.Settlement:
    """Marked records as marked, all others with `outcome`. No record of the lease may be settled yet."""
    settlement = pb.Settlement(
        lease=lease, outcome=outcome.kind, reason=outcome.reason, retry_after_ms=outcome.retry_after_ms
    )
    if marks:
        settlement.parts.extend(_parts((index, mark) for index, mark in sorted(marks.items()) if mark != outcome))
    return settlement


def marked(lease: bytes, marks: Mapping[int, Outcome]) -> pb.Settlement:
    """The marked records only; the others stay leased."""
    return pb.Settlement(lease=lease, partial=True, parts=_parts(sorted(marks.items())))


def rest(
    lease: bytes, records: int, settled: Collection[int], outcome: Outcome, marks: Mapping[int, Outcome]
) -> pb.Settlement:
    """Like `whole`, when some records are settled already: those must not be sent again with another outcome."""
    left = ((index, marks.get(index, outcome)) for index in range(records) if index not in settled)
    return pb.Settlement(lease=lease, partial=True, parts=_parts(left))


def as_request(settlement: pb.Settlement) -> bytes:
    """An encoded request with this settlement alone. Requests that are joined are one request with the settlements of
    all: so does protobuf read repeated fields."""
    return consumer_pb2.ConsumeRequest(settlements=[settlement]).SerializeToString()


def ack_as_request(lease: bytes) -> bytes:
    """`as_request` of an ack of all records, without making a message: nearly every settlement is one."""
    before, after = _around_lease(len(lease))
    return before + lease + after


@lru_cache(maxsize=16)
def _around_lease(length: int) -> tuple[bytes, bytes]:
    """What precedes and follows a lease of this length in an encoded request that acks it."""
    lease = b"\xff" * length
    request = as_request(whole(lease, ACK, {}))
    start = request.index(lease)
    return request[:start], request[start + length :]


def nacked(settlement: pb.Settlement, reason: str) -> pb.Settlement:
    """The same records with a NACK instead."""
    if not settlement.partial:
        return pb.Settlement(lease=settlement.lease, outcome=pb.OUTCOME_NACK, reason=reason)
    parts = [
        pb.Part(first=one.first, count=one.count, outcome=pb.OUTCOME_NACK, reason=reason) for one in settlement.parts
    ]
    return pb.Settlement(lease=settlement.lease, partial=True, parts=parts)


def split(settlement: pb.Settlement, records: int, max_bytes: int, max_parts: int) -> list[pb.Settlement]:
    """The same as several settlements of at most about `max_bytes` and `max_parts` each; a single one if it is small
    enough."""
    if settlement.ByteSize() <= max_bytes and len(settlement.parts) <= max_parts:
        return [settlement]
    pieces: list[pb.Settlement] = []
    size = max_bytes
    for part in settlement.parts if settlement.partial else _all_parts(settlement, records):
        # Plus the tag and the length of the part.
        added = part.ByteSize() + 4
        if size + added > max_bytes or len(pieces[-1].parts) == max_parts:
            pieces.append(pb.Settlement(lease=settlement.lease, partial=True))
            size = pieces[-1].ByteSize()
        pieces[-1].parts.append(part)
        size += added
    return pieces


def _parts(outcomes: Iterable[tuple[int, Outcome]]) -> Iterator[pb.Part]:
    """Ascending outcomes of records as ranges: neighbours with the same outcome share one."""
    first = count = 0
    current: Outcome | None = None
    for index, outcome in outcomes:
        if current is not None and index == first + count and outcome == current:
            count += 1
            continue
        if current is not None:
            yield _part(first, count, current)
        first, count, current = index, 1, outcome
    if current is not None:
        yield _part(first, count, current)


def _part(first: int, count: int, outcome: Outcome) -> pb.Part:
    return pb.Part(
        first=first,
        count=count,
        outcome=outcome.kind,
        reason=outcome.reason,
        retry_after_ms=outcome.retry_after_ms,
    )


def _all_parts(settlement: pb.Settlement, records: int) -> Iterator[pb.Part]:
    """The parts of a settlement, and its own outcome as parts for the records between them."""
    at = 0
    for part in [*settlement.parts, pb.Part(first=records)]:
        if part.first > at:
            between = pb.Part(first=at, count=part.first - at, outcome=settlement.outcome, reason=settlement.reason)
            if settlement.HasField("retry_after_ms"):
                between.retry_after_ms = settlement.retry_after_ms
            yield between
        if part.count:
            yield part
        at = part.first + part.count
