"""Data that an older release wrote, read by today's code. See README.md."""

import json
from pathlib import Path
from typing import Any

from sidecar.model.records import Header, Record

FIXTURES = Path(__file__).parent / "e9f74a6"


def fixture(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text("utf-8"))


def record_of(stored: dict[str, Any], **more: Any) -> Record:
    """A record of a fixture, where bytes are written as hex."""
    key, value = data_of(stored["key"]), data_of(stored["value"])
    headers = tuple(Header(name, data_of(data)) for name, data in stored["headers"])
    fields = {"lane": stored["lane"], "position": stored.get("position", 0)} | more
    return Record(
        key,
        value,
        headers,
        **fields,
        timestamp_ms=stored.get("timestamp_ms", 0),
        ref=bytes.fromhex(stored.get("ref", "")),
    )


def data_of(hexadecimal: str | None) -> bytes | None:
    return None if hexadecimal is None else bytes.fromhex(hexadecimal)
