"""Errors that `offramp lint` reports for Pulsar."""

from pathlib import Path

import pytest

from sidecar import config
from sidecar.config import InvalidConfigError

BASE = """
brokers:
  pulsar:
    url: pulsar://pulsar:6650
    subscription_type: {kind}
    {more}
subscriptions:
  orders:
    broker: pulsar
    topics: [{topics}]
    {settings}
"""


def lint(folder: Path, kind: str, settings: str = "", more: str = "", topics: str = "orders") -> list[str]:
    """The errors, without the name of the file."""
    file = folder / "offramp.yaml"
    file.write_text(BASE.format(kind=kind, settings=settings, more=more, topics=topics))
    try:
        config.load(str(file), environ={})
    except InvalidConfigError as error:
        return [line.partition("offramp.yaml:")[2] for line in error.lines]
    return []


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_order_lane_is_refused_where_sidecars_share_a_lane(tmp_path: Path, kind: str) -> None:
    (line,) = lint(tmp_path, kind, "order: lane")
    assert line.startswith(
        f'11: subscriptions.orders.order: "lane" cannot be kept with subscription_type {kind}: several'
    )


def test_order_key_is_refused_where_sidecars_share_a_key(tmp_path: Path) -> None:
    (line,) = lint(tmp_path, "shared", "order: key")
    assert 'subscriptions.orders.order: "key" cannot be kept with subscription_type shared' in line
    assert line.endswith("Take key_shared")


@pytest.mark.parametrize(
    ("kind", "order"),
    [("exclusive", "lane"), ("failover", "lane"), ("failover", "key"), ("key_shared", "key"), ("shared", "none")],
)
def test_what_can_be_promised_is_fine(tmp_path: Path, kind: str, order: str) -> None:
    assert lint(tmp_path, kind, f"order: {order}") == []


def test_a_window_that_the_broker_would_never_fill_is_refused(tmp_path: Path) -> None:
    (line,) = lint(tmp_path, "shared", "window: {records: 49600}")
    assert "subscriptions.orders.window.records: 49600 and a receiver_queue of 500 are more than" in line
    assert line.endswith("It takes at most 49500")
    assert lint(tmp_path, "shared", "window: {records: 49600}", "unacked_limit: 0") == []


def test_a_pattern_must_be_one(tmp_path: Path) -> None:
    (line,) = lint(tmp_path, "shared", topics="'^orders-('")
    assert 'subscriptions.orders.topics: "^orders-(" is not a pattern of topics' in line
    assert lint(tmp_path, "shared", topics="'^orders-.*'") == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("token: a\n    token_file: b", "7: brokers.pulsar.token_file: there is a token, too; one of them is enough"),
        ("tls_key: k.pem", "brokers.pulsar.tls_key: a certificate and its key go together"),
        ("tls_ca: ca.pem", "brokers.pulsar.tls_ca: the url is not pulsar+ssl://"),
        ("namespace: default", 'brokers.pulsar.namespace: "default" is not like tenant/namespace'),
        ("admin_url: pulsar:8080", 'brokers.pulsar.admin_url: "pulsar:8080" is not like http://host:8080'),
    ],
)
def test_options_that_do_not_go_together_are_told_with_their_line(tmp_path: Path, more: str, said: str) -> None:
    (line,) = lint(tmp_path, "shared", more=more)
    assert said in line
