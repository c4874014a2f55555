"""Statuses for tests of their display."""

from offramp.v1 import admin_pb2 as admin


def status(
    uptime_ms: int = 1000, lanes: int = 4, delivered: int = 0, boot: bytes = b"b", **more: object
) -> admin.Status:
    rows = [
        admin.LaneStatus(topic="orders", lane=n, lag=1000 * n, in_flight_records=n, ready_records=5)
        for n in range(lanes)
    ]
    orders = admin.SubscriptionStatus(
        name="orders", broker="local", topics=["orders"], order="ORDER_NONE", state=admin.SUBSCRIPTION_STATE_RUNNING,
        lanes=rows, sessions=[admin.SessionStatus()] * 2, buffered_bytes=32, buffered_bytes_limit=64,
        in_flight_records=12_345, would_be_replayed=99, oldest_unsettled_ms=61_000,
        counters=admin.Counters(delivered=delivered, acked=delivered, dead_lettered=3), **more,
    )  # type: ignore[arg-type]  # fmt: skip
    return admin.Status(version="1.0", boot=boot, uptime_ms=uptime_ms, subscriptions=[orders])
