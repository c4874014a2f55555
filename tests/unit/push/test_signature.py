"""Calls are signed as standardwebhooks do: their own library checks it."""

import base64
import time

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from sidecar.model.errors import StartError
from sidecar.push.signature import parse_keys, sign

SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 24).decode()


def now_ms() -> int:
    return int(time.time() * 1000)


def test_the_library_accepts_the_signature() -> None:
    headers = dict(sign(parse_keys("s", SECRET.encode()), "orders/0/7", b'{"n": 1}', now_ms()))
    assert Webhook(SECRET).verify(b'{"n": 1}', headers) == {"n": 1}


@pytest.mark.parametrize(("body", "id_"), [(b"[2]", "a"), (b"[1]", "b")])
def test_the_library_refuses_another_body_or_id(body: bytes, id_: str) -> None:
    headers = dict(sign(parse_keys("s", SECRET.encode()), "a", b"[1]", now_ms()))
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body, {**headers, "webhook-id": id_})


def test_during_a_rotation_either_secret_is_accepted() -> None:
    headers = dict(sign(parse_keys("s", f"{SECRET}\n{OTHER}\n".encode()), "a", b"[1]", now_ms()))
    assert Webhook(SECRET).verify(b"[1]", headers) == Webhook(OTHER).verify(b"[1]", headers)


def test_a_secret_may_be_any_text() -> None:
    assert parse_keys("s", b"hello\n") == (b"hello",)


def test_a_secret_that_is_not_base64_is_an_error() -> None:
    with pytest.raises(StartError, match="is not base64"):
        parse_keys("s", b"whsec_?")
