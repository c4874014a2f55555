from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_SUBSCRIPTION_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_SESSION_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_BROKER_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_TOPIC_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_LANE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_SERVICE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_REQUEST: _ClassVar[ErrorReason]
    ERROR_REASON_TOO_MANY_ENTRIES: _ClassVar[ErrorReason]
    ERROR_REASON_MESSAGE_TOO_LARGE: _ClassVar[ErrorReason]
    ERROR_REASON_RECORD_TOO_LARGE: _ClassVar[ErrorReason]
    ERROR_REASON_UNKNOWN_OUTCOME: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_PARTS: _ClassVar[ErrorReason]
    ERROR_REASON_VERSION: _ClassVar[ErrorReason]
    ERROR_REASON_SEQ: _ClassVar[ErrorReason]
    ERROR_REASON_MODE: _ClassVar[ErrorReason]
    ERROR_REASON_UNSUPPORTED: _ClassVar[ErrorReason]
    ERROR_REASON_GROUP_IN_USE: _ClassVar[ErrorReason]
    ERROR_REASON_BROKER_REFUSED: _ClassVar[ErrorReason]
    ERROR_REASON_TOKEN: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_FORBIDDEN: _ClassVar[ErrorReason]
    ERROR_REASON_REVOKED: _ClassVar[ErrorReason]
    ERROR_REASON_STOPPING: _ClassVar[ErrorReason]
    ERROR_REASON_BROKER_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_BROKER_FULL: _ClassVar[ErrorReason]
    ERROR_REASON_TOO_MANY_SESSIONS: _ClassVar[ErrorReason]
    ERROR_REASON_UNREAD_RESPONSES: _ClassVar[ErrorReason]
    ERROR_REASON_UNREAD_STREAM: _ClassVar[ErrorReason]
    ERROR_REASON_SUPERSEDED: _ClassVar[ErrorReason]
    ERROR_REASON_READER_REPLACED: _ClassVar[ErrorReason]
    ERROR_REASON_LANE_MOVED: _ClassVar[ErrorReason]
    ERROR_REASON_OUT_OF_RANGE: _ClassVar[ErrorReason]
    ERROR_REASON_CORRUPT: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_SUBSCRIPTION_NOT_FOUND: ErrorReason
ERROR_REASON_SESSION_NOT_FOUND: ErrorReason
ERROR_REASON_BROKER_NOT_FOUND: ErrorReason
ERROR_REASON_TOPIC_NOT_FOUND: ErrorReason
ERROR_REASON_LANE_NOT_FOUND: ErrorReason
ERROR_REASON_SERVICE_NOT_FOUND: ErrorReason
ERROR_REASON_INVALID_REQUEST: ErrorReason
ERROR_REASON_TOO_MANY_ENTRIES: ErrorReason
ERROR_REASON_MESSAGE_TOO_LARGE: ErrorReason
ERROR_REASON_RECORD_TOO_LARGE: ErrorReason
ERROR_REASON_UNKNOWN_OUTCOME: ErrorReason
ERROR_REASON_INVALID_PARTS: ErrorReason
ERROR_REASON_VERSION: ErrorReason
ERROR_REASON_SEQ: ErrorReason
ERROR_REASON_MODE: ErrorReason
ERROR_REASON_UNSUPPORTED: ErrorReason
ERROR_REASON_GROUP_IN_USE: ErrorReason
ERROR_REASON_BROKER_REFUSED: ErrorReason
ERROR_REASON_TOKEN: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_FORBIDDEN: ErrorReason
ERROR_REASON_REVOKED: ErrorReason
ERROR_REASON_STOPPING: ErrorReason
ERROR_REASON_BROKER_UNAVAILABLE: ErrorReason
ERROR_REASON_BROKER_FULL: ErrorReason
ERROR_REASON_TOO_MANY_SESSIONS: ErrorReason
ERROR_REASON_UNREAD_RESPONSES: ErrorReason
ERROR_REASON_UNREAD_STREAM: ErrorReason
ERROR_REASON_SUPERSEDED: ErrorReason
ERROR_REASON_READER_REPLACED: ErrorReason
ERROR_REASON_LANE_MOVED: ErrorReason
ERROR_REASON_OUT_OF_RANGE: ErrorReason
ERROR_REASON_CORRUPT: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason

class ErrorStatus(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[ErrorDetail]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[ErrorDetail, _Mapping]]] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("type_url", "value")
    TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    type_url: str
    value: bytes
    def __init__(self, type_url: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class ErrorInfo(_message.Message):
    __slots__ = ("reason", "domain", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    reason: str
    domain: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, reason: _Optional[str] = ..., domain: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...
