"""A record as a CloudEvent 1.0. Pure.

A record that is an event already, by the Kafka protocol binding (headers `ce_…`, or a value of type
application/cloudevents+json), keeps its attributes. What Offramp knows of the delivery is added as extensions.
"""

import base64
import binascii
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from sidecar.push import header_text
from sidecar.push.batch import PushedBatch, PushedRecord
from sidecar.push.header_text import Headers
from sidecar.settings import PushSettings

_STRUCTURED = "application/cloudevents+json"
_ATTRIBUTE = re.compile(r"[a-z0-9]{1,100}")
_JSON_TYPE = re.compile(r"\s*(?:application|text)/(?:[^\s;]*\+)?json\s*(?:;.*)?", re.IGNORECASE)
_TEXT_TYPE = re.compile(r"\s*text/", re.IGNORECASE)
#: members of an event in JSON that are not attributes
_DATA = ("data", "data_base64")

Attribute = str | int | bool


@dataclass(frozen=True, slots=True)
class Event:
    attributes: dict[str, Attribute]
    data: bytes | None

    @property
    def id(self) -> str:
        return str(self.attributes["id"])


def event(pushed: PushedRecord, batch: PushedBatch, settings: PushSettings) -> Event:
    attributes: dict[str, Attribute] = {
        "specversion": "1.0",
        "id": pushed.id,
        "source": f"/offramp/{header_text.encode(batch.topic)}",
        "type": settings.event_type,
    }
    record, content_type = pushed.record, pushed.header("content-type")
    if time := _time(record.timestamp_ms):
        attributes["time"] = time
    data = record.value
    found = _parse_structured(data) if data and (content_type or "").lower().startswith(_STRUCTURED) else None
    if found is not None:
        attributes.update(found.attributes)
        data = found.data
    else:
        if data is not None:
            attributes["datacontenttype"] = content_type or _guess_type(data, settings.content_type)
        attributes.update(_binding_attributes(pushed))
    attributes.update(_extensions(pushed, batch))
    return Event(attributes, data)


def as_json(event: Event) -> bytes:
    """In JSON: data that is JSON goes in as it is, other text as a string, and the rest as base64."""
    # In ASCII: an attribute may be half of a surrogate pair, which UTF-8 cannot express.
    text = json.dumps(event.attributes, separators=(",", ":"))
    member = _data_member(event)
    return f"{text[:-1]},{member}}}".encode() if member else text.encode()


def as_headers(event: Event) -> Headers:
    """In binary mode, where the data is the body."""
    out: Headers = []
    for name, value in event.attributes.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if name == "datacontenttype":
            out.append(("content-type", header_text.encode(text).replace("%20", " ")))
        else:
            out.append((f"ce-{name}", header_text.encode(text)))
    return out


def _extensions(pushed: PushedRecord, batch: PushedBatch) -> dict[str, Attribute]:
    record = pushed.record
    out: dict[str, Attribute] = {
        "offrampid": pushed.id,
        "topic": batch.topic,
        "lane": record.lane,
        # Attributes are numbers of 32 bits at most, positions are not.
        "position": str(record.position),
        "attempt": pushed.attempt,
        "possiblyprocessed": pushed.possibly_processed,
    }
    if record.key is not None:
        try:
            out["partitionkey"] = record.key.decode()
        except UnicodeDecodeError:
            out["partitionkeybase64"] = base64.b64encode(record.key).decode()
    for name in ("traceparent", "tracestate"):
        if text := pushed.header(name):
            out[name] = text
    return out


def _binding_attributes(pushed: PushedRecord) -> dict[str, Attribute]:
    """Those in headers by the Kafka protocol binding; none unless they are complete enough to be an event's."""
    found = {
        header.name[3:].lower(): header.value.decode(errors="replace")
        for header in pushed.record.headers
        if header.name[:3].lower() in ("ce_", "ce-") and header.value
    }
    if found.get("specversion") != "1.0":
        return {}
    return {name: text for name, text in found.items() if _ATTRIBUTE.fullmatch(name) and name not in _DATA}


def _parse_structured(value: bytes) -> Event | None:
    parsed = _parse_json(value)
    if not isinstance(parsed, dict) or parsed.get("specversion") != "1.0":
        return None
    attributes = {name: found for name, found in parsed.items() if name not in _DATA and found is not None}
    if not all(_ATTRIBUTE.fullmatch(name) and isinstance(found, Attribute) for name, found in attributes.items()):
        return None
    try:
        return Event(attributes, _structured_data(parsed))
    except (ValueError, TypeError, binascii.Error):
        return None


def _structured_data(parsed: dict[str, Any]) -> bytes | None:
    if "data_base64" in parsed:
        return base64.b64decode(parsed["data_base64"], validate=True)
    data = parsed.get("data")
    if data is None:
        return None
    if isinstance(data, str) and not _is_json(parsed.get("datacontenttype") or "application/json"):
        return data.encode(errors="replace")
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


def _data_member(event: Event) -> str:
    data = event.data
    if data is None:
        return ""
    content_type = str(event.attributes.get("datacontenttype", "application/json"))
    try:
        if _is_json(content_type) and _parse_json(data) is not _INVALID:
            return f'"data":{data.decode()}'
        if _TEXT_TYPE.match(content_type) and not _is_json(content_type):
            return f'"data":{json.dumps(data.decode(), ensure_ascii=False)}'
    except UnicodeDecodeError:
        pass
    return f'"data_base64":"{base64.b64encode(data).decode()}"'


def _guess_type(data: bytes, default: str) -> str:
    """The default, unless it says JSON and the value is not."""
    if not _is_json(default) or _parse_json(data) is not _INVALID:
        return default
    try:
        data.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"


def _is_json(content_type: str) -> bool:
    return _JSON_TYPE.fullmatch(content_type) is not None


_INVALID = object()


def _parse_json(data: bytes) -> Any:
    """What it means, or `_INVALID`."""
    try:
        return json.loads(data.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _INVALID


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _time(timestamp_ms: int) -> str:
    """Empty for a time that the format cannot express."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC) if timestamp_ms > 0 else None
    except (OverflowError, ValueError, OSError):
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z") if moment else ""
