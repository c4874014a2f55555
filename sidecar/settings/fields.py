"""What settings are made of: documented fields, and types that say how a value is written."""

from dataclasses import field
from typing import Annotated, Any, NewType

#: seconds; written as 200ms, 5s, 10m, 1h or a plain number of seconds
Seconds = NewType("Seconds", float)
#: bytes; written as 512KiB, 1MiB, 10MB or a plain number
Bytes = NewType("Bytes", int)
#: permissions; written in octal, as in 0660
Mode = Annotated[int, "mode"]
#: host:port, or empty
Address = Annotated[str, "address"]


def setting(doc: str, default: Any = ..., **more: Any) -> Any:
    """A documented field, which is a key of the file; other fields are not. Without a default the key is required.

    More: `at_least` and `at_most` bound a number or the length of a list. `secret=True` keeps the value out of every
    message; this is the default for names such as `password`. `example` is the value in the example file for a key
    without a default.
    """
    metadata = {"doc": doc, **more}
    if default is ...:
        return field(metadata=metadata)
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def section(doc: str, cls: type) -> Any:
    """A documented group of settings."""
    return field(default_factory=cls, metadata={"doc": doc})
