from offramp.v1 import record_pb2 as _record_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HandleRequest(_message.Message):
    __slots__ = ("batch", "subscription")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    batch: _record_pb2.Batch
    subscription: str
    def __init__(self, batch: _Optional[_Union[_record_pb2.Batch, _Mapping]] = ..., subscription: _Optional[str] = ...) -> None: ...

class HandleResponse(_message.Message):
    __slots__ = ("outcome", "reason", "retry_after_ms", "parts")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    outcome: _record_pb2.Outcome
    reason: str
    retry_after_ms: int
    parts: _containers.RepeatedCompositeFieldContainer[_record_pb2.Part]
    def __init__(self, outcome: _Optional[_Union[_record_pb2.Outcome, str]] = ..., reason: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[_record_pb2.Part, _Mapping]]] = ...) -> None: ...
