"""Errors that `offramp lint` reports for Redis."""

from pathlib import Path

import pytest

from sidecar import config
from sidecar.config import InvalidConfigError

BASE = """
brokers:
  redis:
    {broker}
subscriptions:
  orders:
    broker: redis
    topics: [orders]
    {settings}
"""


def lint(folder: Path, broker: str = "url: redis://redis:6379", settings: str = "") -> list[str]:
    """The errors, without the name of the file."""
    file = folder / "offramp.yaml"
    file.write_text(BASE.format(broker=broker, settings=settings))
    try:
        config.load(str(file), environ={})
    except InvalidConfigError as error:
        return [line.partition("offramp.yaml:")[2] for line in error.lines]
    return []


@pytest.mark.parametrize("order", ["key", "lane"])
def test_an_order_is_refused_with_what_to_use_instead(tmp_path: Path, order: str) -> None:
    (line,) = lint(tmp_path, settings=f"order: {order}")
    assert f'subscriptions.orders.order: "{order}" cannot be kept: ' in line
    assert "Take order none, or a broker whose lanes have one owner" in line


@pytest.mark.parametrize(
    "url",
    ["redis://redis", "redis://[::1]:6379/2", "rediss://redis:6380", "unix:///run/redis.sock", "redis://10.0.0.1:1"],
)
def test_an_address_is_fine(tmp_path: Path, url: str) -> None:
    assert lint(tmp_path, f'url: "{url}"') == []


@pytest.mark.parametrize(
    ("broker", "words"),
    [
        ("url: redis://user:secret@redis:6379", "user and password have keys of their own"),
        ("url: http://redis:6379", "is not like redis://host:6379"),
        ('{url: "redis://redis", username: me}', "username: requires a password"),
        ('{url: "redis://redis", password: secret, password_file: file}', "one of them is enough"),
        ('{url: "redis://redis", tls_ca: file}', "the url is not rediss://"),
        ('{url: "rediss://redis", tls_key: file}', "a certificate and its key go together"),
        ('{url: "redis://redis", key_field: value}', '"value" is the value_field, too'),
        ('{url: "redis://redis", value_field: ""}', "it takes the name of a field"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, broker: str, words: str) -> None:
    (line,) = lint(tmp_path, broker)
    assert words in line
    assert "secret" not in line
