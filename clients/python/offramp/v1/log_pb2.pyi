from offramp.v1 import record_pb2 as _record_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LanePosition(_message.Message):
    __slots__ = ("topic", "lane", "position")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    lane: int
    position: int
    def __init__(self, topic: _Optional[str] = ..., lane: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("subscription", "reader")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    reader: str
    def __init__(self, subscription: _Optional[str] = ..., reader: _Optional[str] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("token", "committed")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    token: int
    committed: _containers.RepeatedCompositeFieldContainer[LanePosition]
    def __init__(self, token: _Optional[int] = ..., committed: _Optional[_Iterable[_Union[LanePosition, _Mapping]]] = ...) -> None: ...

class StartEarliest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StartLatest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StartCommitted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResolveStartRequest(_message.Message):
    __slots__ = ("subscription", "token", "earliest", "latest", "committed", "timestamp_ms")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    token: int
    earliest: StartEarliest
    latest: StartLatest
    committed: StartCommitted
    timestamp_ms: int
    def __init__(self, subscription: _Optional[str] = ..., token: _Optional[int] = ..., earliest: _Optional[_Union[StartEarliest, _Mapping]] = ..., latest: _Optional[_Union[StartLatest, _Mapping]] = ..., committed: _Optional[_Union[StartCommitted, _Mapping]] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class ResolveStartResponse(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[LanePosition]
    def __init__(self, positions: _Optional[_Iterable[_Union[LanePosition, _Mapping]]] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("subscription", "start", "max_records", "max_bytes", "ceiling", "token")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    CEILING_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    start: _containers.RepeatedCompositeFieldContainer[LanePosition]
    max_records: int
    max_bytes: int
    ceiling: _containers.RepeatedCompositeFieldContainer[LanePosition]
    token: int
    def __init__(self, subscription: _Optional[str] = ..., start: _Optional[_Iterable[_Union[LanePosition, _Mapping]]] = ..., max_records: _Optional[int] = ..., max_bytes: _Optional[int] = ..., ceiling: _Optional[_Iterable[_Union[LanePosition, _Mapping]]] = ..., token: _Optional[int] = ...) -> None: ...

class PlanResponse(_message.Message):
    __slots__ = ("until", "ends")
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    until: _containers.RepeatedCompositeFieldContainer[LanePosition]
    ends: _containers.RepeatedCompositeFieldContainer[LanePosition]
    def __init__(self, until: _Optional[_Iterable[_Union[LanePosition, _Mapping]]] = ..., ends: _Optional[_Iterable[_Union[LanePosition, _Mapping]]] = ...) -> None: ...

class LocateRequest(_message.Message):
    __slots__ = ("subscription", "topics", "earliest", "latest", "timestamp_ms", "dead_letters")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    earliest: StartEarliest
    latest: StartLatest
    timestamp_ms: int
    dead_letters: bool
    def __init__(self, subscription: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., earliest: _Optional[_Union[StartEarliest, _Mapping]] = ..., latest: _Optional[_Union[StartLatest, _Mapping]] = ..., timestamp_ms: _Optional[int] = ..., dead_letters: bool = ...) -> None: ...

class LocateResponse(_message.Message):
    __slots__ = ("positions", "group")
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[LanePosition]
    group: str
    def __init__(self, positions: _Optional[_Iterable[_Union[LanePosition, _Mapping]]] = ..., group: _Optional[str] = ...) -> None: ...

class ReadRangeRequest(_message.Message):
    __slots__ = ("subscription", "topic", "lane", "start", "until", "max_message_bytes")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    topic: str
    lane: int
    start: int
    until: int
    max_message_bytes: int
    def __init__(self, subscription: _Optional[str] = ..., topic: _Optional[str] = ..., lane: _Optional[int] = ..., start: _Optional[int] = ..., until: _Optional[int] = ..., max_message_bytes: _Optional[int] = ...) -> None: ...

class ReadRangeResponse(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[_record_pb2.Record]
    def __init__(self, records: _Optional[_Iterable[_Union[_record_pb2.Record, _Mapping]]] = ...) -> None: ...

class CommitUpToRequest(_message.Message):
    __slots__ = ("subscription", "token", "positions")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    token: int
    positions: _containers.RepeatedCompositeFieldContainer[LanePosition]
    def __init__(self, subscription: _Optional[str] = ..., token: _Optional[int] = ..., positions: _Optional[_Iterable[_Union[LanePosition, _Mapping]]] = ...) -> None: ...

class CommitUpToResponse(_message.Message):
    __slots__ = ("committed",)
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    committed: _containers.RepeatedCompositeFieldContainer[LanePosition]
    def __init__(self, committed: _Optional[_Iterable[_Union[LanePosition, _Mapping]]] = ...) -> None: ...
