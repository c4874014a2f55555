"""What can be configured, and what is wrong with it."""

from typing import Any

import pytest

from sidecar.brokers.nats import NatsOptions
from sidecar.model.errors import ConfigError

URL = "nats://nats:4222"


@pytest.mark.parametrize("url", [URL, "tls://nats", "nats://one:4222, nats://two:4223", "nats://[::1]:4222"])
def test_urls(url: str) -> None:
    assert NatsOptions(url=url).address


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "nats://user:secret@nats"}, "url: is not like"),
        ({"url": "http://nats"}, "url: is not like"),
        ({"url": "nats://a,tls://b"}, "url: some servers"),
        ({"username": "u"}, "go together"),
        ({"username": "u", "password": "p", "token": "t"}, "take one of"),
        ({"username": "u", "password": "p", "password_file": "f"}, "password_file"),
        ({"token": "t", "token_file": "f"}, "token_file"),
        ({"tls_ca": "ca.pem"}, "url: does not begin with tls"),
        ({"url": "tls://nats", "tls_key": "k"}, "tls_key"),
        ({"inbox_prefix": "a b"}, "inbox_prefix"),
        ({"start_at": "yesterday"}, "start_at"),
        ({"start_at": "2026-01-31T12:00:00"}, "start_at"),
    ],
)
def test_what_does_not_fit_is_refused_and_secrets_are_not_shown(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        NatsOptions(**{"url": URL, **options})
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("start", ["", "4711", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00+01:00"])
def test_groups_start_at_a_sequence_or_a_time(start: str) -> None:
    assert NatsOptions(url=URL, start_at=start).start_sequence == (4711 if start == "4711" else 0)
