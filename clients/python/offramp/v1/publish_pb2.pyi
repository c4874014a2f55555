from offramp.v1 import record_pb2 as _record_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetLimitsRequest(_message.Message):
    __slots__ = ("subscription", "broker")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    broker: str
    def __init__(self, subscription: _Optional[str] = ..., broker: _Optional[str] = ...) -> None: ...

class GetLimitsResponse(_message.Message):
    __slots__ = ("max_request_bytes", "max_messages")
    MAX_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    max_request_bytes: int
    max_messages: int
    def __init__(self, max_request_bytes: _Optional[int] = ..., max_messages: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("key", "value", "headers", "lane", "timestamp_ms")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[_record_pb2.Header]
    lane: int
    timestamp_ms: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[_record_pb2.Header, _Mapping]]] = ..., lane: _Optional[int] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("lane", "position")
    LANE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    lane: int
    position: int
    def __init__(self, lane: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...
