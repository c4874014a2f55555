from offramp.v1 import record_pb2 as _record_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubscriptionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUBSCRIPTION_STATE_UNSPECIFIED: _ClassVar[SubscriptionState]
    SUBSCRIPTION_STATE_STARTING: _ClassVar[SubscriptionState]
    SUBSCRIPTION_STATE_RUNNING: _ClassVar[SubscriptionState]
    SUBSCRIPTION_STATE_PAUSED: _ClassVar[SubscriptionState]
    SUBSCRIPTION_STATE_PROBING: _ClassVar[SubscriptionState]
    SUBSCRIPTION_STATE_DRAINING: _ClassVar[SubscriptionState]
    SUBSCRIPTION_STATE_FAILED: _ClassVar[SubscriptionState]

class Order(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORDER_UNSPECIFIED: _ClassVar[Order]
    ORDER_NONE: _ClassVar[Order]
    ORDER_KEY: _ClassVar[Order]
    ORDER_LANE: _ClassVar[Order]

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    MODE_LEASES: _ClassVar[Mode]
    MODE_RANGES: _ClassVar[Mode]
SUBSCRIPTION_STATE_UNSPECIFIED: SubscriptionState
SUBSCRIPTION_STATE_STARTING: SubscriptionState
SUBSCRIPTION_STATE_RUNNING: SubscriptionState
SUBSCRIPTION_STATE_PAUSED: SubscriptionState
SUBSCRIPTION_STATE_PROBING: SubscriptionState
SUBSCRIPTION_STATE_DRAINING: SubscriptionState
SUBSCRIPTION_STATE_FAILED: SubscriptionState
ORDER_UNSPECIFIED: Order
ORDER_NONE: Order
ORDER_KEY: Order
ORDER_LANE: Order
MODE_UNSPECIFIED: Mode
MODE_LEASES: Mode
MODE_RANGES: Mode

class GetStatusRequest(_message.Message):
    __slots__ = ("subscription",)
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    def __init__(self, subscription: _Optional[str] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ...) -> None: ...

class WatchStatusRequest(_message.Message):
    __slots__ = ("subscription", "interval_ms")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    interval_ms: int
    def __init__(self, subscription: _Optional[str] = ..., interval_ms: _Optional[int] = ...) -> None: ...

class WatchStatusResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("version", "boot", "uptime_ms", "draining", "subscriptions", "brokers", "trouble", "runtime")
    class RuntimeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    version: str
    boot: bytes
    uptime_ms: int
    draining: bool
    subscriptions: _containers.RepeatedCompositeFieldContainer[SubscriptionStatus]
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerStatus]
    trouble: _containers.RepeatedScalarFieldContainer[str]
    runtime: _containers.ScalarMap[str, str]
    def __init__(self, version: _Optional[str] = ..., boot: _Optional[bytes] = ..., uptime_ms: _Optional[int] = ..., draining: bool = ..., subscriptions: _Optional[_Iterable[_Union[SubscriptionStatus, _Mapping]]] = ..., brokers: _Optional[_Iterable[_Union[BrokerStatus, _Mapping]]] = ..., trouble: _Optional[_Iterable[str]] = ..., runtime: _Optional[_Mapping[str, str]] = ...) -> None: ...

class BrokerStatus(_message.Message):
    __slots__ = ("name", "type", "trouble", "facts")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    trouble: str
    facts: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., trouble: _Optional[str] = ..., facts: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SubscriptionStatus(_message.Message):
    __slots__ = ("name", "broker", "group", "topics", "order", "state", "trouble", "lanes", "sessions", "counters", "leases", "in_flight_records", "waiting_records", "buffered_bytes", "buffered_bytes_limit", "buffered_records", "concurrency_limit", "oldest_unsettled_ms", "would_be_replayed", "mode", "reader")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_RECORDS_FIELD_NUMBER: _ClassVar[int]
    WAITING_RECORDS_FIELD_NUMBER: _ClassVar[int]
    BUFFERED_BYTES_FIELD_NUMBER: _ClassVar[int]
    BUFFERED_BYTES_LIMIT_FIELD_NUMBER: _ClassVar[int]
    BUFFERED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_UNSETTLED_MS_FIELD_NUMBER: _ClassVar[int]
    WOULD_BE_REPLAYED_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    name: str
    broker: str
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    order: Order
    state: SubscriptionState
    trouble: _containers.RepeatedScalarFieldContainer[str]
    lanes: _containers.RepeatedCompositeFieldContainer[LaneStatus]
    sessions: _containers.RepeatedCompositeFieldContainer[SessionStatus]
    counters: Counters
    leases: int
    in_flight_records: int
    waiting_records: int
    buffered_bytes: int
    buffered_bytes_limit: int
    buffered_records: int
    concurrency_limit: int
    oldest_unsettled_ms: int
    would_be_replayed: int
    mode: Mode
    reader: ReaderStatus
    def __init__(self, name: _Optional[str] = ..., broker: _Optional[str] = ..., group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., order: _Optional[_Union[Order, str]] = ..., state: _Optional[_Union[SubscriptionState, str]] = ..., trouble: _Optional[_Iterable[str]] = ..., lanes: _Optional[_Iterable[_Union[LaneStatus, _Mapping]]] = ..., sessions: _Optional[_Iterable[_Union[SessionStatus, _Mapping]]] = ..., counters: _Optional[_Union[Counters, _Mapping]] = ..., leases: _Optional[int] = ..., in_flight_records: _Optional[int] = ..., waiting_records: _Optional[int] = ..., buffered_bytes: _Optional[int] = ..., buffered_bytes_limit: _Optional[int] = ..., buffered_records: _Optional[int] = ..., concurrency_limit: _Optional[int] = ..., oldest_unsettled_ms: _Optional[int] = ..., would_be_replayed: _Optional[int] = ..., mode: _Optional[_Union[Mode, str]] = ..., reader: _Optional[_Union[ReaderStatus, _Mapping]] = ...) -> None: ...

class ReaderStatus(_message.Message):
    __slots__ = ("name", "token", "age_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    token: int
    age_ms: int
    def __init__(self, name: _Optional[str] = ..., token: _Optional[int] = ..., age_ms: _Optional[int] = ...) -> None: ...

class LaneStatus(_message.Message):
    __slots__ = ("topic", "lane", "committed", "fetched", "end", "lag", "settled_beyond", "ready_records", "in_flight_records", "waiting_records", "paused", "held_by", "buffered_bytes", "parked", "oldest_position", "oldest_ms", "oldest_with", "would_be_replayed")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    FETCHED_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    SETTLED_BEYOND_FIELD_NUMBER: _ClassVar[int]
    READY_RECORDS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_RECORDS_FIELD_NUMBER: _ClassVar[int]
    WAITING_RECORDS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    BUFFERED_BYTES_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_POSITION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_WITH_FIELD_NUMBER: _ClassVar[int]
    WOULD_BE_REPLAYED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    lane: int
    committed: int
    fetched: int
    end: int
    lag: int
    settled_beyond: int
    ready_records: int
    in_flight_records: int
    waiting_records: int
    paused: bool
    held_by: str
    buffered_bytes: int
    parked: bool
    oldest_position: int
    oldest_ms: int
    oldest_with: str
    would_be_replayed: int
    def __init__(self, topic: _Optional[str] = ..., lane: _Optional[int] = ..., committed: _Optional[int] = ..., fetched: _Optional[int] = ..., end: _Optional[int] = ..., lag: _Optional[int] = ..., settled_beyond: _Optional[int] = ..., ready_records: _Optional[int] = ..., in_flight_records: _Optional[int] = ..., waiting_records: _Optional[int] = ..., paused: bool = ..., held_by: _Optional[str] = ..., buffered_bytes: _Optional[int] = ..., parked: bool = ..., oldest_position: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., oldest_with: _Optional[str] = ..., would_be_replayed: _Optional[int] = ...) -> None: ...

class SessionStatus(_message.Message):
    __slots__ = ("session", "name", "language", "library", "pid", "leases", "in_flight_records", "credit_batches", "age_ms", "oldest_lease_ms", "away_ms")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    LIBRARY_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_RECORDS_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BATCHES_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    AWAY_MS_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    name: str
    language: str
    library: str
    pid: int
    leases: int
    in_flight_records: int
    credit_batches: int
    age_ms: int
    oldest_lease_ms: int
    away_ms: int
    def __init__(self, session: _Optional[bytes] = ..., name: _Optional[str] = ..., language: _Optional[str] = ..., library: _Optional[str] = ..., pid: _Optional[int] = ..., leases: _Optional[int] = ..., in_flight_records: _Optional[int] = ..., credit_batches: _Optional[int] = ..., age_ms: _Optional[int] = ..., oldest_lease_ms: _Optional[int] = ..., away_ms: _Optional[int] = ...) -> None: ...

class Counters(_message.Message):
    __slots__ = ("fetched", "delivered", "redelivered", "acked", "nacked", "released", "rejected", "overloaded", "expired", "abandoned", "parked", "unparked", "dead_lettered", "dropped", "stale_settlements", "unknown_settlements", "refused_settlements", "batches", "splits", "commits", "failed_commits", "removed", "resumed_sessions")
    FETCHED_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    NACKED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    OVERLOADED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    ABANDONED_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    UNPARKED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    STALE_SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    FAILED_COMMITS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    RESUMED_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    fetched: int
    delivered: int
    redelivered: int
    acked: int
    nacked: int
    released: int
    rejected: int
    overloaded: int
    expired: int
    abandoned: int
    parked: int
    unparked: int
    dead_lettered: int
    dropped: int
    stale_settlements: int
    unknown_settlements: int
    refused_settlements: int
    batches: int
    splits: int
    commits: int
    failed_commits: int
    removed: int
    resumed_sessions: int
    def __init__(self, fetched: _Optional[int] = ..., delivered: _Optional[int] = ..., redelivered: _Optional[int] = ..., acked: _Optional[int] = ..., nacked: _Optional[int] = ..., released: _Optional[int] = ..., rejected: _Optional[int] = ..., overloaded: _Optional[int] = ..., expired: _Optional[int] = ..., abandoned: _Optional[int] = ..., parked: _Optional[int] = ..., unparked: _Optional[int] = ..., dead_lettered: _Optional[int] = ..., dropped: _Optional[int] = ..., stale_settlements: _Optional[int] = ..., unknown_settlements: _Optional[int] = ..., refused_settlements: _Optional[int] = ..., batches: _Optional[int] = ..., splits: _Optional[int] = ..., commits: _Optional[int] = ..., failed_commits: _Optional[int] = ..., removed: _Optional[int] = ..., resumed_sessions: _Optional[int] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("subscription", "reason")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    reason: str
    def __init__(self, subscription: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class PauseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("subscription",)
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    def __init__(self, subscription: _Optional[str] = ...) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SeekRequest(_message.Message):
    __slots__ = ("subscription", "topic", "lane", "position", "timestamp_ms", "start", "end")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    topic: str
    lane: int
    position: int
    timestamp_ms: int
    start: SeekStart
    end: SeekEnd
    def __init__(self, subscription: _Optional[str] = ..., topic: _Optional[str] = ..., lane: _Optional[int] = ..., position: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., start: _Optional[_Union[SeekStart, _Mapping]] = ..., end: _Optional[_Union[SeekEnd, _Mapping]] = ...) -> None: ...

class SeekStart(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SeekEnd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SeekResponse(_message.Message):
    __slots__ = ("lanes",)
    LANES_FIELD_NUMBER: _ClassVar[int]
    lanes: _containers.RepeatedCompositeFieldContainer[SoughtLane]
    def __init__(self, lanes: _Optional[_Iterable[_Union[SoughtLane, _Mapping]]] = ...) -> None: ...

class SoughtLane(_message.Message):
    __slots__ = ("topic", "lane", "position")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    lane: int
    position: int
    def __init__(self, topic: _Optional[str] = ..., lane: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class DeadLetterFilter(_message.Message):
    __slots__ = ("reason", "since_ms", "until_ms")
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    since_ms: int
    until_ms: int
    def __init__(self, reason: _Optional[str] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class ListDeadLettersRequest(_message.Message):
    __slots__ = ("subscription", "limit", "id", "without_payload", "filter", "page")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    limit: int
    id: str
    without_payload: bool
    filter: DeadLetterFilter
    page: str
    def __init__(self, subscription: _Optional[str] = ..., limit: _Optional[int] = ..., id: _Optional[str] = ..., without_payload: bool = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., page: _Optional[str] = ...) -> None: ...

class ListDeadLettersResponse(_message.Message):
    __slots__ = ("dead_letters", "next_page")
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_FIELD_NUMBER: _ClassVar[int]
    dead_letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    next_page: str
    def __init__(self, dead_letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., next_page: _Optional[str] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("id", "topic", "lane", "position", "reason", "attempts", "worker", "dead_lettered_ms", "record", "redriven")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_MS_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    id: str
    topic: str
    lane: int
    position: int
    reason: str
    attempts: int
    worker: str
    dead_lettered_ms: int
    record: _record_pb2.Record
    redriven: bool
    def __init__(self, id: _Optional[str] = ..., topic: _Optional[str] = ..., lane: _Optional[int] = ..., position: _Optional[int] = ..., reason: _Optional[str] = ..., attempts: _Optional[int] = ..., worker: _Optional[str] = ..., dead_lettered_ms: _Optional[int] = ..., record: _Optional[_Union[_record_pb2.Record, _Mapping]] = ..., redriven: bool = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("subscription", "ids", "all", "filter", "again")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    filter: DeadLetterFilter
    again: bool
    def __init__(self, subscription: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., all: bool = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., again: bool = ...) -> None: ...

class RedriveResponse(_message.Message):
    __slots__ = ("redriven", "skipped")
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    redriven: int
    skipped: int
    def __init__(self, redriven: _Optional[int] = ..., skipped: _Optional[int] = ...) -> None: ...

class DeleteDeadLettersRequest(_message.Message):
    __slots__ = ("subscription", "ids", "all", "filter")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    filter: DeadLetterFilter
    def __init__(self, subscription: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., all: bool = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ...) -> None: ...

class DeleteDeadLettersResponse(_message.Message):
    __slots__ = ("deleted",)
    DELETED_FIELD_NUMBER: _ClassVar[int]
    deleted: int
    def __init__(self, deleted: _Optional[int] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("broker", "group")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    broker: str
    group: str
    def __init__(self, broker: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
