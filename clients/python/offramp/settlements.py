"""From what was said of a batch's records to the settlements that travel. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from offramp.v1 import record_pb2 as pb
from offramp.verdicts import Verdict


def whole(lease: bytes, verdict: Verdict, marks: Mapping[int, Verdict]) -> pb.Settlement:
    """The marked records as marked, all others as `verdict` says. No record of the lease may be settled yet."""
    settlement = pb.Settlement(
        lease=lease, outcome=verdict.outcome, reason=verdict.reason, retry_after_ms=verdict.retry_after_ms
    )
    if marks:
        settlement.parts.extend(_parts((index, mark) for index, mark in sorted(marks.items()) if mark != verdict))
    return settlement


def marked(lease: bytes, marks: Mapping[int, Verdict]) -> pb.Settlement:
    """The marked records only; the others stay leased."""
    return pb.Settlement(lease=lease, partial=True, parts=_parts(sorted(marks.items())))


def rest(
    lease: bytes, records: int, settled: Collection[int], verdict: Verdict, marks: Mapping[int, Verdict]
) -> pb.Settlement:
    """Like `whole`, when some records are settled already: those must not be named again with another outcome."""
    left = ((index, marks.get(index, verdict)) for index in range(records) if index not in settled)
    return pb.Settlement(lease=lease, partial=True, parts=_parts(left))


def split(settlement: pb.Settlement, records: int, most_bytes: int) -> list[pb.Settlement]:
    """The same as several settlements, each of about `most_bytes` at the most. A single one if it is small enough."""
    if settlement.ByteSize() <= most_bytes:
        return [settlement]
    pieces: list[pb.Settlement] = []
    size = most_bytes
    for part in settlement.parts if settlement.partial else _spread(settlement, records):
        # Tag and length of the part come on top.
        added = part.ByteSize() + 4
        if size + added > most_bytes:
            pieces.append(pb.Settlement(lease=settlement.lease, partial=True))
            size = pieces[-1].ByteSize()
        pieces[-1].parts.append(part)
        size += added
    return pieces


def _parts(verdicts: Iterable[tuple[int, Verdict]]) -> Iterator[pb.Part]:
    """Ascending verdicts of records as ranges: neighbours with the same verdict share one."""
    first = count = 0
    current: Verdict | None = None
    for index, verdict in verdicts:
        if current is not None and index == first + count and verdict == current:
            count += 1
            continue
        if current is not None:
            yield _part(first, count, current)
        first, count, current = index, 1, verdict
    if current is not None:
        yield _part(first, count, current)


def _part(first: int, count: int, verdict: Verdict) -> pb.Part:
    return pb.Part(
        first=first,
        count=count,
        outcome=verdict.outcome,
        reason=verdict.reason,
        retry_after_ms=verdict.retry_after_ms,
    )


def _spread(settlement: pb.Settlement, records: int) -> Iterator[pb.Part]:
    """The parts of a settlement, and its own outcome as parts between them."""
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
