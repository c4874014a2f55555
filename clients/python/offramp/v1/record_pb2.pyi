from offramp.v1 import error_pb2 as _error_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClosedBy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CLOSED_BY_UNSPECIFIED: _ClassVar[ClosedBy]
    CLOSED_BY_RECORDS: _ClassVar[ClosedBy]
    CLOSED_BY_BYTES: _ClassVar[ClosedBy]
    CLOSED_BY_LINGER: _ClassVar[ClosedBy]
    CLOSED_BY_RETRY: _ClassVar[ClosedBy]
    CLOSED_BY_PROBE: _ClassVar[ClosedBy]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_ACK: _ClassVar[Outcome]
    OUTCOME_NACK: _ClassVar[Outcome]
    OUTCOME_RELEASE: _ClassVar[Outcome]
    OUTCOME_REJECT: _ClassVar[Outcome]
    OUTCOME_OVERLOADED: _ClassVar[Outcome]

class SettleStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SETTLE_STATUS_UNSPECIFIED: _ClassVar[SettleStatus]
    SETTLE_STATUS_SETTLED: _ClassVar[SettleStatus]
    SETTLE_STATUS_STALE: _ClassVar[SettleStatus]
    SETTLE_STATUS_UNKNOWN: _ClassVar[SettleStatus]
    SETTLE_STATUS_REFUSED: _ClassVar[SettleStatus]

class ExtendStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXTEND_STATUS_UNSPECIFIED: _ClassVar[ExtendStatus]
    EXTEND_STATUS_EXTENDED: _ClassVar[ExtendStatus]
    EXTEND_STATUS_ENDED: _ClassVar[ExtendStatus]
    EXTEND_STATUS_UNKNOWN: _ClassVar[ExtendStatus]
CLOSED_BY_UNSPECIFIED: ClosedBy
CLOSED_BY_RECORDS: ClosedBy
CLOSED_BY_BYTES: ClosedBy
CLOSED_BY_LINGER: ClosedBy
CLOSED_BY_RETRY: ClosedBy
CLOSED_BY_PROBE: ClosedBy
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_ACK: Outcome
OUTCOME_NACK: Outcome
OUTCOME_RELEASE: Outcome
OUTCOME_REJECT: Outcome
OUTCOME_OVERLOADED: Outcome
SETTLE_STATUS_UNSPECIFIED: SettleStatus
SETTLE_STATUS_SETTLED: SettleStatus
SETTLE_STATUS_STALE: SettleStatus
SETTLE_STATUS_UNKNOWN: SettleStatus
SETTLE_STATUS_REFUSED: SettleStatus
EXTEND_STATUS_UNSPECIFIED: ExtendStatus
EXTEND_STATUS_EXTENDED: ExtendStatus
EXTEND_STATUS_ENDED: ExtendStatus
EXTEND_STATUS_UNKNOWN: ExtendStatus

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("key", "value", "headers", "lane", "position", "ref", "timestamp_ms")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    lane: int
    position: int
    ref: bytes
    timestamp_ms: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., lane: _Optional[int] = ..., position: _Optional[int] = ..., ref: _Optional[bytes] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class Redelivery(_message.Message):
    __slots__ = ("first", "count", "attempt", "possibly_processed")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    POSSIBLY_PROCESSED_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    attempt: int
    possibly_processed: bool
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ..., attempt: _Optional[int] = ..., possibly_processed: bool = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("lease", "topic", "lanes", "records", "redeliveries", "lease_for_ms", "closed_by", "topic_id")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERIES_FIELD_NUMBER: _ClassVar[int]
    LEASE_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_BY_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    lease: bytes
    topic: str
    lanes: _containers.RepeatedScalarFieldContainer[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    redeliveries: _containers.RepeatedCompositeFieldContainer[Redelivery]
    lease_for_ms: int
    closed_by: ClosedBy
    topic_id: str
    def __init__(self, lease: _Optional[bytes] = ..., topic: _Optional[str] = ..., lanes: _Optional[_Iterable[int]] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., redeliveries: _Optional[_Iterable[_Union[Redelivery, _Mapping]]] = ..., lease_for_ms: _Optional[int] = ..., closed_by: _Optional[_Union[ClosedBy, str]] = ..., topic_id: _Optional[str] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("first", "count", "outcome", "reason", "retry_after_ms")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    outcome: Outcome
    reason: str
    retry_after_ms: int
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., reason: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class Settlement(_message.Message):
    __slots__ = ("lease", "outcome", "reason", "retry_after_ms", "parts", "partial")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    lease: bytes
    outcome: Outcome
    reason: str
    retry_after_ms: int
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    partial: bool
    def __init__(self, lease: _Optional[bytes] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., reason: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., partial: bool = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("first", "count")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class SettleResult(_message.Message):
    __slots__ = ("lease", "status", "stale", "detail", "reason")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease: bytes
    status: SettleStatus
    stale: _containers.RepeatedCompositeFieldContainer[Range]
    detail: str
    reason: _error_pb2.ErrorReason
    def __init__(self, lease: _Optional[bytes] = ..., status: _Optional[_Union[SettleStatus, str]] = ..., stale: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., detail: _Optional[str] = ..., reason: _Optional[_Union[_error_pb2.ErrorReason, str]] = ...) -> None: ...

class Extension(_message.Message):
    __slots__ = ("lease", "lease_for_ms")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    lease: bytes
    lease_for_ms: int
    def __init__(self, lease: _Optional[bytes] = ..., lease_for_ms: _Optional[int] = ...) -> None: ...

class ExtendResult(_message.Message):
    __slots__ = ("lease", "status", "lease_for_ms")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    lease: bytes
    status: ExtendStatus
    lease_for_ms: int
    def __init__(self, lease: _Optional[bytes] = ..., status: _Optional[_Union[ExtendStatus, str]] = ..., lease_for_ms: _Optional[int] = ...) -> None: ...
