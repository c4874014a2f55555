from offramp.v1 import error_pb2 as _error_pb2
from offramp.v1 import record_pb2 as _record_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PublishStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PUBLISH_STATUS_UNSPECIFIED: _ClassVar[PublishStatus]
    PUBLISH_STATUS_PUBLISHED: _ClassVar[PublishStatus]
    PUBLISH_STATUS_REFUSED: _ClassVar[PublishStatus]
    PUBLISH_STATUS_UNKNOWN: _ClassVar[PublishStatus]
PUBLISH_STATUS_UNSPECIFIED: PublishStatus
PUBLISH_STATUS_PUBLISHED: PublishStatus
PUBLISH_STATUS_REFUSED: PublishStatus
PUBLISH_STATUS_UNKNOWN: PublishStatus

class GetLimitsRequest(_message.Message):
    __slots__ = ("subscription", "broker")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    broker: str
    def __init__(self, subscription: _Optional[str] = ..., broker: _Optional[str] = ...) -> None: ...

class GetLimitsResponse(_message.Message):
    __slots__ = ("max_request_bytes", "max_messages", "delays", "deduplicates")
    MAX_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DELAYS_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATES_FIELD_NUMBER: _ClassVar[int]
    max_request_bytes: int
    max_messages: int
    delays: bool
    deduplicates: bool
    def __init__(self, max_request_bytes: _Optional[int] = ..., max_messages: _Optional[int] = ..., delays: bool = ..., deduplicates: bool = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("key", "value", "headers", "lane", "timestamp_ms", "deliver_after_ms", "deduplication_id")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATION_ID_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[_record_pb2.Header]
    lane: int
    timestamp_ms: int
    deliver_after_ms: int
    deduplication_id: str
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[_record_pb2.Header, _Mapping]]] = ..., lane: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., deliver_after_ms: _Optional[int] = ..., deduplication_id: _Optional[str] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("subscription", "broker", "topic", "messages")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    broker: str
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, subscription: _Optional[str] = ..., broker: _Optional[str] = ..., topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("published",)
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    published: _containers.RepeatedCompositeFieldContainer[Published]
    def __init__(self, published: _Optional[_Iterable[_Union[Published, _Mapping]]] = ...) -> None: ...

class Published(_message.Message):
    __slots__ = ("lane", "position", "status", "reason", "detail", "retryable")
    LANE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    lane: int
    position: int
    status: PublishStatus
    reason: _error_pb2.ErrorReason
    detail: str
    retryable: bool
    def __init__(self, lane: _Optional[int] = ..., position: _Optional[int] = ..., status: _Optional[_Union[PublishStatus, str]] = ..., reason: _Optional[_Union[_error_pb2.ErrorReason, str]] = ..., detail: _Optional[str] = ..., retryable: bool = ...) -> None: ...
