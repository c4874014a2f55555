"""Where to, as requests say it."""

from sidecar.brokers.base import AtTime
from sidecar.model.errors import InvalidRequest


def read_time(timestamp_ms: int) -> AtTime:
    """Raises `InvalidRequest` for a time before 1970: no record is that old, and to some brokers such a number is not
    a time at all."""
    if timestamp_ms < 0:
        raise InvalidRequest(f"timestamp_ms: {timestamp_ms} is negative; it counts milliseconds since 1970")
    return AtTime(timestamp_ms)
