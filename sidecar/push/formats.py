"""A batch as body and headers of a call. Pure."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.model.records import Header
from sidecar.push import cloudevents, header_text
from sidecar.push.batch import PushedBatch, PushedRecord
from sidecar.push.header_text import Headers
from sidecar.settings import PushFormat, PushSettings


@dataclass(frozen=True, slots=True)
class Payload:
    """What one call carries."""

    #: the same for the next delivery of the same record, if there is only one
    id: str
    headers: Headers
    body: bytes
    #: by which the answer may name records, in order
    ids: Sequence[str]


def encode(batch: PushedBatch, settings: PushSettings) -> Payload:
    """The batch in the format of the settings. Formats for single records take a batch of one."""
    headers, body, ids = _ENCODERS[settings.format](batch, settings)
    single = batch.records[0] if len(batch.records) == 1 else None
    common: Headers = [
        ("offramp-batch", batch.id),
        ("offramp-subscription", header_text.encode(batch.subscription)),
        ("offramp-topic", header_text.encode(batch.topic)),
        ("offramp-records", str(len(batch.records))),
    ]
    if single is not None:
        common += _of_single(single)
    id_ = header_text.encode(single.id) if single is not None else batch.id
    return Payload(id_, [*common, *headers], body, ids)


def _of_single(single: PushedRecord) -> Iterator[tuple[str, str]]:
    record = single.record
    yield "offramp-record", header_text.encode(single.id)
    yield "offramp-lane", str(record.lane)
    yield "offramp-position", str(record.position)
    yield "offramp-timestamp-ms", str(record.timestamp_ms)
    yield "offramp-attempt", str(single.attempt)
    yield "offramp-possibly-processed", "true" if single.possibly_processed else "false"
    if record.key is not None:
        yield "offramp-key", header_text.encode(record.key)
    if record.value is None:
        yield "offramp-value", "null"


_Encoded = tuple[Headers, bytes, Sequence[str]]


def _json(batch: PushedBatch, _: PushSettings) -> _Encoded:
    body = {
        "batch": batch.id,
        "subscription": batch.subscription,
        "topic": batch.topic,
        "records": [_json_record(record) for record in batch.records],
    }
    return [("content-type", "application/json")], _dump(body), [record.id for record in batch.records]


def _json_record(pushed: PushedRecord) -> dict[str, Any]:
    record = pushed.record
    return {
        "id": pushed.id,
        "lane": record.lane,
        "position": record.position,
        "timestamp_ms": record.timestamp_ms,
        **_text_or_base64("key", record.key),
        **_text_or_base64("value", record.value),
        "headers": [_json_header(header) for header in record.headers],
        "attempt": pushed.attempt,
        "possibly_processed": pushed.possibly_processed,
    }


def _json_header(header: Header) -> dict[str, Any]:
    return {"name": header.name, **_text_or_base64("value", header.value)}


def _text_or_base64(name: str, value: bytes | None) -> dict[str, str | None]:
    """`name` with the text; for bytes that are no UTF-8, `name_base64` instead."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _raw(batch: PushedBatch, settings: PushSettings) -> _Encoded:
    (only,) = batch.records
    taken = ["content-type", *settings.headers, *settings.header_files]
    content_type = header_text.encode(only.header("content-type") or settings.content_type).replace("%20", " ")
    headers = [("content-type", content_type), *header_text.of_record(only.record.headers, taken)]
    return headers, only.record.value or b"", [only.id]


def _events(batch: PushedBatch, settings: PushSettings) -> _Encoded:
    events = [cloudevents.event(record, batch, settings) for record in batch.records]
    body = b"[" + b",".join(map(cloudevents.as_json, events)) + b"]"
    return [("content-type", "application/cloudevents-batch+json; charset=utf-8")], body, [one.id for one in events]


def _structured(batch: PushedBatch, settings: PushSettings) -> _Encoded:
    (only,) = batch.records
    event = cloudevents.event(only, batch, settings)
    content_type = "application/cloudevents+json; charset=utf-8"
    return [("content-type", content_type), *_trace(only)], cloudevents.as_json(event), [event.id]


def _binary(batch: PushedBatch, settings: PushSettings) -> _Encoded:
    (only,) = batch.records
    event = cloudevents.event(only, batch, settings)
    headers = [*cloudevents.as_headers(event), *_trace(only)]
    return headers, event.data or b"", [event.id]


def _trace(only: PushedRecord) -> Headers:
    """The producer's own trace."""
    return [(name, header_text.encode(text)) for name in ("traceparent", "tracestate") if (text := only.header(name))]


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


_ENCODERS: Mapping[PushFormat, Callable[[PushedBatch, PushSettings], _Encoded]] = {
    PushFormat.CLOUDEVENTS: _events,
    PushFormat.CLOUDEVENTS_STRUCTURED: _structured,
    PushFormat.CLOUDEVENTS_BINARY: _binary,
    PushFormat.JSON: _json,
    PushFormat.RAW: _raw,
}
