"""Fields of the consumer service's responses, encoded. Batches are encoded in `sidecar.model.wire`."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from offramp.v1 import consumer_pb2, error_pb2, record_pb2
from sidecar.model.records import Extended, Notice, Range, SettleResult, SettleStatus
from sidecar.model.wire import varint

#: length-delimited fields: number << 3 | 2
CONSUME_WELCOME, CONSUME_RESULTS, CONSUME_EXTENDED, CONSUME_NOTICES = b"\x0a", b"\x1a", b"\x22", b"\x2a"
OPEN_NOTICES = b"\x12"
FETCH_RESULTS, FETCH_NOTICES = b"\x12", b"\x1a"
SETTLE_RESULTS = b"\x0a"
EXTEND_RESULTS = b"\x0a"

#: bytes of any result in its shortest form: without a detail, and with one range
SHORTEST_RESULT = 48
#: ranges of a result; beyond this, neighbours are joined
_MAX_RANGES = 100
#: bytes of a notice without its leases, and of each lease
_NOTICE_BYTES, _LEASE_BYTES = 1_100, 20
#: characters of a notice's detail
_MAX_DETAIL = 250


def field(tag: bytes, body: bytes) -> bytes:
    return tag + varint(len(body)) + body


def settle_results(tag: bytes, results: Sequence[SettleResult], limit: int) -> list[bytes]:
    """The results of one response of at most `limit` bytes, which has room for the shortest form of each."""
    encoded = [settle_result(tag, result) for result in results]
    if sum(map(len, encoded)) > limit:
        encoded = [settle_result(tag, result._replace(stale=_join(result.stale, 1), detail="")) for result in results]
    return encoded


def settle_result(tag: bytes, result: SettleResult) -> bytes:
    lease = result.lease
    if result.status is SettleStatus.SETTLED:
        # Nearly every result. The lease is one of ours, so all lengths are one byte, and there is nothing to add.
        return b"%b%c\x0a%c%b\x10%c" % (tag, len(lease) + 4, len(lease), lease, result.status)
    body = record_pb2.SettleResult(
        lease=lease,
        status=record_pb2.SettleStatus.Name(result.status),
        stale=[record_pb2.Range(first=stale.first, count=stale.count) for stale in _join(result.stale, _MAX_RANGES)],
        detail=result.detail,
        reason=error_pb2.ErrorReason.Name(result.reason or 0),
    ).SerializeToString()
    return field(tag, body)


def _join(ranges: tuple[Range, ...], limit: int) -> tuple[Range, ...]:
    """The same ranges; if there are too many, fewer that contain them, each joined from neighbours."""
    if len(ranges) <= limit:
        return ranges
    together = -(-len(ranges) // limit)
    joined: list[Range] = []
    for at in range(0, len(ranges), together):
        first, last = ranges[at], ranges[min(at + together, len(ranges)) - 1]
        joined.append(Range(first.first, last.first + last.count - first.first))
    return tuple(joined)


def extend_result(tag: bytes, extended: Extended) -> bytes:
    body = record_pb2.ExtendResult(
        lease=extended.lease,
        status=record_pb2.ExtendStatus.Name(extended.status),
        lease_for_ms=int(extended.lease_for * 1_000),
    ).SerializeToString()
    return field(tag, body)


def notice(tag: bytes, notice: Notice) -> bytes:
    left = notice.until - asyncio.get_running_loop().time() if notice.until else 0.0
    body = consumer_pb2.Notice(
        kind=consumer_pb2.NoticeKind.Name(notice.kind),
        leases=notice.leases,
        detail=notice.detail[:_MAX_DETAIL],
        settle_for_ms=max(0, int(left * 1_000)),
    ).SerializeToString()
    return field(tag, body)


def split_notice(notice: Notice, limit: int) -> list[Notice]:
    """The same as notices that take at most this many bytes each."""
    most = max(1, (limit - _NOTICE_BYTES) // _LEASE_BYTES)
    if len(notice.leases) <= most:
        return [notice]
    return [replace(notice, leases=notice.leases[at : at + most]) for at in range(0, len(notice.leases), most)]
