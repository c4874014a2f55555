from offramp.v1 import record_pb2 as _record_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NoticeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NOTICE_KIND_UNSPECIFIED: _ClassVar[NoticeKind]
    NOTICE_KIND_DRAINING: _ClassVar[NoticeKind]
    NOTICE_KIND_REVOKED: _ClassVar[NoticeKind]
    NOTICE_KIND_PAUSED: _ClassVar[NoticeKind]
    NOTICE_KIND_RESUMED: _ClassVar[NoticeKind]
NOTICE_KIND_UNSPECIFIED: NoticeKind
NOTICE_KIND_DRAINING: NoticeKind
NOTICE_KIND_REVOKED: NoticeKind
NOTICE_KIND_PAUSED: NoticeKind
NOTICE_KIND_RESUMED: NoticeKind

class Client(_message.Message):
    __slots__ = ("language", "library", "version", "protocol_minor", "needs_protocol_minor", "pid", "name")
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    LIBRARY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MINOR_FIELD_NUMBER: _ClassVar[int]
    NEEDS_PROTOCOL_MINOR_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    language: str
    library: str
    version: str
    protocol_minor: int
    needs_protocol_minor: int
    pid: int
    name: str
    def __init__(self, language: _Optional[str] = ..., library: _Optional[str] = ..., version: _Optional[str] = ..., protocol_minor: _Optional[int] = ..., needs_protocol_minor: _Optional[int] = ..., pid: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("batches", "bytes")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    batches: int
    bytes: int
    def __init__(self, batches: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("subscription", "client", "credit", "max_message_bytes", "lease_ms", "max_batch_records", "resume_ms", "resume", "held")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_RECORDS_FIELD_NUMBER: _ClassVar[int]
    RESUME_MS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    client: Client
    credit: Credit
    max_message_bytes: int
    lease_ms: int
    max_batch_records: int
    resume_ms: int
    resume: bytes
    held: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, subscription: _Optional[str] = ..., client: _Optional[_Union[Client, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., max_message_bytes: _Optional[int] = ..., lease_ms: _Optional[int] = ..., max_batch_records: _Optional[int] = ..., resume_ms: _Optional[int] = ..., resume: _Optional[bytes] = ..., held: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("hello", "settlements", "extensions", "credit", "draining")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    settlements: _containers.RepeatedCompositeFieldContainer[_record_pb2.Settlement]
    extensions: _containers.RepeatedCompositeFieldContainer[_record_pb2.Extension]
    credit: Credit
    draining: bool
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., settlements: _Optional[_Iterable[_Union[_record_pb2.Settlement, _Mapping]]] = ..., extensions: _Optional[_Iterable[_Union[_record_pb2.Extension, _Mapping]]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., draining: bool = ...) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ("welcome", "batches", "results", "extended", "notices")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    EXTENDED_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    batches: _containers.RepeatedCompositeFieldContainer[_record_pb2.Batch]
    results: _containers.RepeatedCompositeFieldContainer[_record_pb2.SettleResult]
    extended: _containers.RepeatedCompositeFieldContainer[_record_pb2.ExtendResult]
    notices: _containers.RepeatedCompositeFieldContainer[Notice]
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., batches: _Optional[_Iterable[_Union[_record_pb2.Batch, _Mapping]]] = ..., results: _Optional[_Iterable[_Union[_record_pb2.SettleResult, _Mapping]]] = ..., extended: _Optional[_Iterable[_Union[_record_pb2.ExtendResult, _Mapping]]] = ..., notices: _Optional[_Iterable[_Union[Notice, _Mapping]]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("session", "boot", "protocol_minor", "sidecar_version", "limits", "features", "resume_ms")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MINOR_FIELD_NUMBER: _ClassVar[int]
    SIDECAR_VERSION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    RESUME_MS_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    boot: bytes
    protocol_minor: int
    sidecar_version: str
    limits: Limits
    features: _containers.RepeatedScalarFieldContainer[str]
    resume_ms: int
    def __init__(self, session: _Optional[bytes] = ..., boot: _Optional[bytes] = ..., protocol_minor: _Optional[int] = ..., sidecar_version: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., features: _Optional[_Iterable[str]] = ..., resume_ms: _Optional[int] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("batch_records", "batch_bytes", "lease_max_ms", "max_request_bytes", "max_request_entries")
    BATCH_RECORDS_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEASE_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUEST_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    batch_records: int
    batch_bytes: int
    lease_max_ms: int
    max_request_bytes: int
    max_request_entries: int
    def __init__(self, batch_records: _Optional[int] = ..., batch_bytes: _Optional[int] = ..., lease_max_ms: _Optional[int] = ..., max_request_bytes: _Optional[int] = ..., max_request_entries: _Optional[int] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("kind", "leases", "detail", "settle_for_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    kind: NoticeKind
    leases: _containers.RepeatedScalarFieldContainer[bytes]
    detail: str
    settle_for_ms: int
    def __init__(self, kind: _Optional[_Union[NoticeKind, str]] = ..., leases: _Optional[_Iterable[bytes]] = ..., detail: _Optional[str] = ..., settle_for_ms: _Optional[int] = ...) -> None: ...

class OpenRequest(_message.Message):
    __slots__ = ("subscription", "client", "max_message_bytes", "lease_ms", "max_batch_records", "resume_ms", "resume")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_RECORDS_FIELD_NUMBER: _ClassVar[int]
    RESUME_MS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    client: Client
    max_message_bytes: int
    lease_ms: int
    max_batch_records: int
    resume_ms: int
    resume: bytes
    def __init__(self, subscription: _Optional[str] = ..., client: _Optional[_Union[Client, _Mapping]] = ..., max_message_bytes: _Optional[int] = ..., lease_ms: _Optional[int] = ..., max_batch_records: _Optional[int] = ..., resume_ms: _Optional[int] = ..., resume: _Optional[bytes] = ...) -> None: ...

class OpenResponse(_message.Message):
    __slots__ = ("welcome", "notices")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    notices: _containers.RepeatedCompositeFieldContainer[Notice]
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., notices: _Optional[_Iterable[_Union[Notice, _Mapping]]] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("subscription", "session", "seq", "settlements", "want", "wait_ms", "lease_ms", "max_message_bytes", "client", "max_batch_records")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_RECORDS_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    session: bytes
    seq: int
    settlements: _containers.RepeatedCompositeFieldContainer[_record_pb2.Settlement]
    want: Credit
    wait_ms: int
    lease_ms: int
    max_message_bytes: int
    client: Client
    max_batch_records: int
    def __init__(self, subscription: _Optional[str] = ..., session: _Optional[bytes] = ..., seq: _Optional[int] = ..., settlements: _Optional[_Iterable[_Union[_record_pb2.Settlement, _Mapping]]] = ..., want: _Optional[_Union[Credit, _Mapping]] = ..., wait_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., client: _Optional[_Union[Client, _Mapping]] = ..., max_batch_records: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("batches", "results", "notices")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[_record_pb2.Batch]
    results: _containers.RepeatedCompositeFieldContainer[_record_pb2.SettleResult]
    notices: _containers.RepeatedCompositeFieldContainer[Notice]
    def __init__(self, batches: _Optional[_Iterable[_Union[_record_pb2.Batch, _Mapping]]] = ..., results: _Optional[_Iterable[_Union[_record_pb2.SettleResult, _Mapping]]] = ..., notices: _Optional[_Iterable[_Union[Notice, _Mapping]]] = ...) -> None: ...

class SettleRequest(_message.Message):
    __slots__ = ("settlements",)
    SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    settlements: _containers.RepeatedCompositeFieldContainer[_record_pb2.Settlement]
    def __init__(self, settlements: _Optional[_Iterable[_Union[_record_pb2.Settlement, _Mapping]]] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_record_pb2.SettleResult]
    def __init__(self, results: _Optional[_Iterable[_Union[_record_pb2.SettleResult, _Mapping]]] = ...) -> None: ...

class ExtendLeaseRequest(_message.Message):
    __slots__ = ("extensions",)
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    extensions: _containers.RepeatedCompositeFieldContainer[_record_pb2.Extension]
    def __init__(self, extensions: _Optional[_Iterable[_Union[_record_pb2.Extension, _Mapping]]] = ...) -> None: ...

class ExtendLeaseResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_record_pb2.ExtendResult]
    def __init__(self, results: _Optional[_Iterable[_Union[_record_pb2.ExtendResult, _Mapping]]] = ...) -> None: ...
