"""What workers say, as messages of the protocol."""

from offramp.v1 import record_pb2
from sidecar.model.records import Settlement


def as_proto(settlement: Settlement) -> record_pb2.Settlement:
    outcome = record_pb2.Outcome.Name(settlement.outcome or 0)
    out = record_pb2.Settlement(
        lease=settlement.lease, outcome=outcome, reason=settlement.reason, partial=settlement.outcome is None
    )
    if settlement.retry_after is not None:
        out.retry_after_ms = round(settlement.retry_after * 1_000)
    for part in settlement.parts:
        piece = out.parts.add(first=part.first, count=part.count, outcome=part.outcome.value, reason=part.reason)
        if part.retry_after is not None:
            piece.retry_after_ms = round(part.retry_after * 1_000)
    return out
