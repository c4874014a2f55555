"""What streams, subjects and consumers are called."""

import pytest

from sidecar.brokers.nats import naming
from sidecar.model.records import Lane


@pytest.mark.parametrize(
    ("subjects", "lanes"),
    [
        (["orders"], 1),
        (["orders", "orders.1", "orders.2"], 3),
        (["orders", "orders.2"], 1),
        (["orders.>"], 1),
        (["new", "old"], 1),
        ([], 1),
    ],
)
def test_a_stream_has_lanes_if_its_subjects_are_those_of_lanes(subjects: list[str], lanes: int) -> None:
    assert naming.lanes_in("orders", subjects) == lanes


def test_names_have_no_dots() -> None:
    assert naming.stream_of("group.offramp.retry") == "group_offramp_retry"
    assert naming.consumer_of("my.group", Lane("topic", 0)) == "my_group"
    assert naming.consumer_of("my.group", Lane("topic", 3)) == "my_group_3"


@pytest.mark.parametrize("name", ["", "a b", "a..b", ".a", "a*", "a.>", "a/b", "a\\b", "a\tb"])
def test_a_name_that_nats_does_not_take_is_known(name: str) -> None:
    assert not naming.is_allowed(name)


@pytest.mark.parametrize(
    ("subject", "pattern", "within"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.*", True),
        ("a.b.c", "a.*", False),
        ("a.b.c", "a.>", True),
        ("a", "a.>", False),
        ("a", ">", True),
        ("b.c", "a.>", False),
    ],
)
def test_subjects_match_patterns_as_on_the_server(subject: str, pattern: str, *, within: bool) -> None:
    assert naming.is_within(subject, pattern) is within
