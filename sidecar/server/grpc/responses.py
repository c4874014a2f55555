"""Fields of the consumer service's responses, encoded. Batches are encoded in `sidecar.model.wire`."""

from offramp.v1 import consumer_pb2, record_pb2
from sidecar.model.records import Extended, Notice, SettleResult
from sidecar.model.wire import varint

#: length-delimited fields: number << 3 | 2
CONSUME_WELCOME, CONSUME_RESULTS, CONSUME_EXTENDED, CONSUME_NOTICES = b"\x0a", b"\x1a", b"\x22", b"\x2a"
OPEN_WELCOME, OPEN_NOTICES = b"\x0a", b"\x12"
FETCH_RESULTS, FETCH_NOTICES = b"\x12", b"\x1a"
SETTLE_RESULTS = b"\x0a"
EXTEND_RESULTS = b"\x0a"


def field(tag: bytes, body: bytes) -> bytes:
    return tag + varint(len(body)) + body


def settle_result(tag: bytes, result: SettleResult) -> bytes:
    # Nearly every result is this short one, and a worker that takes batches of one gets thousands a second.
    body = b"\x0a%b%b\x10%b" % (varint(len(result.lease)), result.lease, varint(result.status))
    if result.stale or result.detail:
        body += record_pb2.SettleResult(
            stale=[record_pb2.Range(first=stale.first, count=stale.count) for stale in result.stale],
            detail=result.detail,
        ).SerializeToString()
    return field(tag, body)


def extend_result(tag: bytes, extended: Extended) -> bytes:
    body = record_pb2.ExtendResult(
        lease=extended.lease,
        # UNSPECIFIED means that the lease was extended.
        status=record_pb2.SettleStatus.Name(extended.status or 0),
        lease_for_ms=int(extended.lease_for * 1_000),
    ).SerializeToString()
    return field(tag, body)


def notice(tag: bytes, notice: Notice) -> bytes:
    body = consumer_pb2.Notice(
        kind=consumer_pb2.NoticeKind.Name(notice.kind), leases=notice.leases, detail=notice.detail
    ).SerializeToString()
    return field(tag, body)
