"""Batches as they would be delivered."""

from collections.abc import Sequence
from typing import Any

from sidecar.model.records import ClosedBy, Delivery, Header, Redelivery
from sidecar.model.wire import encode_frame
from sidecar.push import formats
from sidecar.push.batch import PushedBatch
from sidecar.push.formats import Payload
from sidecar.settings import PushFormat, PushSettings


def batch(
    *values: bytes | None,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    redeliveries: Sequence[Redelivery] = (),
    timestamp_ms: int = 0,
) -> PushedBatch:
    """Records of lane 2 of `orders`, from position 10 on."""
    frames = [
        encode_frame(key, value, [Header(*header) for header in headers], 2, 10 + index, timestamp_ms)
        for index, value in enumerate(values)
    ]
    size = sum(map(len, frames))
    delivery = Delivery(
        b"\xab" * 16, "orders", (2,), frames, len(frames), size, tuple(redeliveries), 30.0, ClosedBy.RECORDS
    )
    return PushedBatch.of(delivery, "orders")


def payload(format_: PushFormat, *values: bytes | None, settings: PushSettings | None = None, **more: Any) -> Payload:
    settings = settings or PushSettings(url="http://app", format=format_)
    return formats.encode(batch(*values, **more), settings)
