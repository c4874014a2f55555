"""Statuses and dead letters as protobuf messages."""

from dataclasses import asdict

from offramp.v1 import admin_pb2 as pb
from offramp.v1 import record_pb2
from sidecar.core.failures.dead_letter_topic import DeadLetterEntry
from sidecar.model.records import Record
from sidecar.observability.status import (
    BrokerStatus,
    LaneStatus,
    ReaderStatus,
    SessionStatus,
    Status,
    SubscriptionStatus,
)


def to_status(status: Status) -> pb.Status:
    return pb.Status(
        version=status.version,
        boot=status.boot,
        uptime_ms=_ms(status.uptime),
        draining=status.draining,
        subscriptions=[_subscription(one) for one in status.subscriptions],
        brokers=[_broker(one) for one in status.brokers],
        trouble=status.trouble,
    )


def to_dead_letter(letter: DeadLetterEntry, *, without_payload: bool) -> pb.DeadLetter:
    return pb.DeadLetter(
        id=letter.id,
        topic=letter.topic,
        lane=letter.record.lane,
        position=letter.record.position,
        reason=letter.reason,
        attempts=letter.attempts,
        worker=letter.worker,
        dead_lettered_ms=letter.dead_lettered_ms,
        record=_record(letter.record, without_payload=without_payload),
    )


def _record(record: Record, *, without_payload: bool) -> record_pb2.Record:
    bare = record_pb2.Record(
        lane=record.lane, position=record.position, timestamp_ms=record.timestamp_ms, ref=record.ref
    )
    if not without_payload:
        if record.key is not None:
            bare.key = record.key
        if record.value is not None:
            bare.value = record.value
        bare.headers.extend(record_pb2.Header(name=name, value=value) for name, value in record.headers)
    return bare


def _broker(status: BrokerStatus) -> pb.BrokerStatus:
    return pb.BrokerStatus(name=status.name, type=status.type, trouble=status.trouble, facts=status.facts)


def _subscription(status: SubscriptionStatus) -> pb.SubscriptionStatus:
    return pb.SubscriptionStatus(
        name=status.name,
        broker=status.broker,
        group=status.group,
        topics=status.topics,
        order=status.order,
        state=pb.SubscriptionState.Name(status.state),
        trouble=status.trouble,
        lanes=[_lane(lane) for lane in status.lanes],
        sessions=[_session(session) for session in status.sessions],
        counters=pb.Counters(**asdict(status.counters)),
        leases=status.leases,
        in_flight_records=status.in_flight_records,
        waiting_records=status.waiting_records,
        buffered_bytes=status.buffered_bytes,
        buffered_bytes_limit=status.buffered_bytes_limit,
        buffered_records=status.buffered_records,
        concurrency_limit=status.concurrency_limit,
        oldest_unsettled_ms=_ms(status.oldest_unsettled),
        would_be_replayed=status.would_be_replayed,
        mode=status.mode,
        reader=_reader(status.reader) if status.reader else None,
    )


def _lane(status: LaneStatus) -> pb.LaneStatus:
    fields = asdict(status)
    return pb.LaneStatus(oldest_ms=_ms(fields.pop("oldest")), **fields)


def _session(status: SessionStatus) -> pb.SessionStatus:
    fields = asdict(status)
    age, oldest_lease = fields.pop("age"), fields.pop("oldest_lease")
    return pb.SessionStatus(age_ms=_ms(age), oldest_lease_ms=_ms(oldest_lease), **fields)


def _reader(status: ReaderStatus) -> pb.ReaderStatus:
    return pb.ReaderStatus(name=status.name, token=status.token, age_ms=_ms(status.age))


def _ms(seconds: float) -> int:
    return max(0, int(seconds * 1_000))
