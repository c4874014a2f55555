"""What settings must be to each other."""

from pathlib import Path

import pytest

from sidecar import config
from sidecar.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def problems(text: str) -> list[str]:
    Path("c.yaml").write_text(text)
    try:
        config.load("c.yaml", environ={})
    except ConfigError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("lease: {default: 2h}", "lease.default: 2h is more than lease.max, which is 1h"),
        ("lease: {max: 10s}", "lease.default: 30s is more than lease.max, which is 10s"),
        ("retry: {first: 10m}", "retry.first: 10m is more than retry.max, which is 5m"),
        ("outage: {probe_max: 1ms}", "outage.probe_first: 500ms is more than outage.probe_max, which is 1ms"),
        (
            "batch: {records: 501}, window: {records: 500}",
            "batch.records: 501 is more than window.records, which is 500",
        ),
        (
            "batch: {bytes: 65MiB}, memory: {bytes: 1GiB}",
            "batch.bytes: 65MiB is more than window.bytes, which is 64MiB",
        ),
        (
            "batch: {bytes: 65MiB}, window: {bytes: 1GiB}",
            "batch.bytes: 65MiB is more than memory.bytes, which is 64MiB",
        ),
        ("window: {records: 200000}", "window.records: 200000 is more than window.span, which is 100000"),
        ("memory: {records: 3000}", "memory.poll_records: 2000 is more than half of memory.records, which is 3000"),
        ("memory: {poll_bytes: 40MiB}", "memory.poll_bytes: 40MiB is more than half of memory.bytes, which is 64MiB"),
        ("parking: {topic: a}", 'parking.topic: "a" is among the topics that the subscription consumes'),
        ("dead_letter: {topic: a}", 'dead_letter.topic: "a" is among the topics that the subscription consumes'),
        (
            "parking: {topic: z}, dead_letter: {topic: z}",
            'dead_letter.topic: "z" is the retry topic, too; they must differ',
        ),
        ("parking: {topic: ''}", "parking.topic: is empty; it takes the name of a topic"),
        (
            "dead_letter: {topic: '{name}.dead'}",
            'dead_letter.topic: "{name}.dead" has other braces than {group}, which is all that is replaced',
        ),
        ("broker: locla", 'broker: "locla" is not among brokers. Did you mean "local"?'),
    ],
)
def test_a_subscription_must_fit_together(keys: str, said: str) -> None:
    assert problems(f"subscriptions: {{s: {{topics: [a], {keys}}}}}") == [f"c.yaml:1: subscriptions.s.{said}"]


def test_a_problem_of_two_keys_points_at_the_nearest_one_that_was_written() -> None:
    assert problems("subscriptions:\n  s:\n    topics: [a]\n    lease:\n      max: 10s\n") == [
        "c.yaml:4: subscriptions.s.lease.default: 30s is more than lease.max, which is 10s"
    ]


def test_order_key_with_parking_on_is_fine() -> None:
    assert problems("subscriptions: {s: {topics: [a], order: key, parking: {enabled: on}}}") == []


def test_one_group_cannot_consume_a_topic_twice() -> None:
    lines = problems("subscriptions:\n  s: {topics: [a, b]}\n  t: {topics: [b], group: s, parking: {topic: r}}\n")
    assert lines == ['c.yaml:3: subscriptions.t.topics: "b" is consumed by s already, under the same group "s"']


def test_two_groups_may_consume_the_same_topic() -> None:
    assert problems("subscriptions: {s: {topics: [a]}, t: {topics: [a]}}") == []


def test_two_subscriptions_cannot_share_a_retry_topic() -> None:
    lines = problems("subscriptions:\n  s: {topics: [a], group: g}\n  t: {topics: [b], group: g}\n")
    assert lines == [
        'c.yaml:3: subscriptions.t.parking.topic: "g.offramp.retry" is the retry topic of s, too: each would take the '
        "other's records"
    ]


def test_a_retry_topic_cannot_be_consumed_by_another_subscription() -> None:
    lines = problems("subscriptions:\n  s: {topics: [a]}\n  t: {topics: [s.offramp.retry]}\n")
    assert lines == [
        'c.yaml:2: subscriptions.s.parking.topic: "s.offramp.retry" is used by t, too; it must be this group\'s own'
    ]


def test_dead_letters_may_be_consumed_by_another_subscription() -> None:
    assert problems("subscriptions: {s: {topics: [a]}, t: {topics: [s.offramp.dead]}}") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listen: {socket: ''}", "listen.socket: is empty, and so is listen.tcp: apps could not connect"),
        ("listen: {socket: 'unix:/x'}", 'listen.socket: "unix:/x" is not a path; write it without unix:'),
        (
            f"listen: {{socket: /{'x' * 107}}}",
            "listen.socket: is longer than the 107 bytes that the path of a socket can have",
        ),
        (
            "listen: {tcp: '0.0.0.0:80'}",
            'listen.tcp: "0.0.0.0:80" is open to other machines; it takes a loopback address such as 127.0.0.1:4770',
        ),
        (
            "listen: {tcp: 'example.org:80'}",
            'listen.tcp: "example.org:80" is open to other machines; it takes a loopback '
            "address such as 127.0.0.1:4770",
        ),
        ("listen: {tcp: '127.0.0.1:4771'}", 'listen.tcp: "127.0.0.1:4771" is the address of http.address, too'),
    ],
)
def test_listeners_must_be_usable_and_safe(text: str, said: str) -> None:
    assert problems(text) == [f"c.yaml:1: {said}"]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "'[::1]:1'", "127.9.9.9:1", "127.0.0.1:0"])
def test_loopback_has_several_names(address: str) -> None:
    assert problems(f"listen: {{socket: '', tcp: {address}}}") == []
