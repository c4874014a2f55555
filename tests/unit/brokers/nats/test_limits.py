"""What a stream and a consumer do to messages by themselves."""

from datetime import UTC, datetime
from typing import Any

import pytest

from sidecar.brokers.nats.limits import ConsumerLimits, nanoseconds, refuse_unusable, troubles_of
from sidecar.model.errors import Refused

SECOND = 1_000_000_000
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def _stream(**config: Any) -> dict[str, Any]:
    state = {"messages": 100, "bytes": 1000, "first_seq": 1, "last_seq": 100, "first_ts": "2026-01-01T00:00:00Z"}
    return {"config": {"name": "orders", **config}, "state": state}


def _consumer(floor: int = 0, pending: int = 100, held: int = 0, **config: Any) -> dict[str, Any]:
    return {
        "name": "group",
        "config": config,
        "ack_floor": {"stream_seq": floor},
        "num_pending": pending,
        "num_ack_pending": held,
    }


def test_the_shortest_wait_of_a_backoff_is_the_lease() -> None:
    limits = ConsumerLimits.of({"ack_wait": 60 * SECOND, "backoff": [5 * SECOND, 90 * SECOND], "max_deliver": 4})
    assert (limits.lease, limits.limits.deliveries) == (5.0, 4)


@pytest.mark.parametrize("config", [{"max_msgs": 110}, {"max_bytes": 1100}, {"max_age": 25 * 3600 * SECOND}])
def test_a_stream_that_soon_removes_what_is_unsettled_is_a_trouble(config: dict[str, Any]) -> None:
    what = next(iter(config))
    assert what in troubles_of(_stream(**config), _consumer(), NOW)["retention"]
    for well in (_consumer(floor=50, pending=50), _consumer(floor=100, pending=0)):
        assert troubles_of(_stream(**config), well, NOW)["retention"] == ""


@pytest.mark.parametrize("config", [{}, {"max_msgs": 1000}, {"max_msgs": 110, "discard": "new"}])
def test_a_stream_that_removes_nothing_soon_is_none(config: dict[str, Any]) -> None:
    assert troubles_of(_stream(**config), _consumer(), NOW)["retention"] == ""


def test_a_consumer_that_gives_no_more_is_a_trouble() -> None:
    assert (
        "max_ack_pending is 10"
        in troubles_of(_stream(), _consumer(held=10, max_ack_pending=10), NOW)["max_ack_pending"]
    )
    assert troubles_of(_stream(), _consumer(held=9, max_ack_pending=10), NOW)["max_ack_pending"] == ""


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"ack_policy": "all"}, "ack policy all"),
        ({"ack_policy": "explicit", "deliver_subject": "x"}, "push consumer"),
        ({"ack_policy": "explicit", "metadata": {"offramp": "my.group/0"}}, "belongs to my.group/0"),
        ({"ack_policy": "explicit", "filter_subject": "b"}, "does not filter a"),
    ],
)
def test_a_consumer_that_cannot_be_used_is_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        refuse_unusable(config, "my_group", "my_group/0", "a")


def test_times_of_the_server_are_whole_nanoseconds() -> None:
    assert nanoseconds("2026-01-01T00:00:00.000000001Z") == nanoseconds("2026-01-01T00:00:00Z") + 1
    assert nanoseconds("1970-01-01T00:00:01.5Z") == SECOND * 3 // 2
