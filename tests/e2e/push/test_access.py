"""Where the app is, who may call it, and what is missing."""

import os
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks.webhooks import Webhook

from tests.e2e.harness import Sidecar, eventually
from tests.e2e.push.harness import QUICK, App, free_port, pushing, running, settled, texts, trouble
from tests.security.authority import Authority

ONE = 0
SECRET, OTHER = "whsec_" + "YQ" * 12, "whsec_" + "Yg" * 12


def private(path: Path, content: str) -> str:
    path.write_text(content)
    path.chmod(0o600)
    return str(path)


def test_an_https_app_is_called_if_an_authority_of_the_settings_vouches_for_it(tmp_path: Path) -> None:
    trusted, other = Authority(tmp_path / "trusted"), Authority(tmp_path / "other")
    pair, port = trusted.sign("app"), free_port()
    options = {"port": port, "ssl_certfile": str(pair.certificate), "ssl_keyfile": str(pair.key)}
    with App(tmp_path, **options) as app:
        url = f"https://127.0.0.1:{port}/orders"
        with pushing(tmp_path, url, {"tls_ca": str(other.certificate)}) as sidecar:
            sidecar.publish("orders", texts(1), lane=ONE)
            trouble(sidecar, "the app cannot be reached", "certificate verify failed")
            assert not app.events()
        with pushing(tmp_path, url, {"tls_ca": str(trusted.certificate)}) as sidecar:
            settled(sidecar, 1)
            assert app.done() == ["1"]


def test_calls_carry_headers_secrets_and_a_signature_that_follow_their_files(tmp_path: Path) -> None:
    push: dict[str, Any] = {
        "headers": {"X-Team": "billing"},
        "header_files": {"Authorization": private(tmp_path / "token", "Bearer first\n")},
        "signing_secret_file": private(tmp_path / "secret", SECRET),
    }
    with running(tmp_path, push) as (app, sidecar):
        sidecar.publish("orders", texts(1), lane=ONE)
        settled(sidecar, 1)
        (call,) = app.events()
        assert call["headers"]["x-team"] == "billing"
        assert call["headers"]["authorization"] == "Bearer first"
        Webhook(SECRET).verify(app.body(0), call["headers"])
        private(tmp_path / "token", "Bearer second\n")
        private(tmp_path / "secret", OTHER)
        sent = 1

        def follows() -> bool:
            nonlocal sent
            sidecar.publish("orders", texts("x"), lane=ONE)
            sent += 1
            settled(sidecar, sent)
            return bool(app.events()[-1]["headers"]["authorization"] == "Bearer second")

        eventually(follows, "the changed file is used")
        Webhook(OTHER).verify(app.body(), app.events()[-1]["headers"])
        assert "first" not in sidecar.log
        assert SECRET not in sidecar.log


@pytest.mark.parametrize(
    ("key", "mode", "content", "said"),
    [
        ("signing_secret_file", 0o644, "x", "accessible to every user"),
        ("signing_secret_file", 0o600, "whsec_?", "is not base64"),
        ("tls_ca", 0o600, "x", "no valid certificates"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_at_the_start(
    tmp_path: Path, key: str, mode: int, content: str, said: str
) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    file.chmod(mode)
    sidecar = pushing(tmp_path, "https://127.0.0.1:1/", {key: str(file)})
    sidecar.launch()
    assert sidecar.wait() == 1
    assert said in sidecar.log
    assert f"subscriptions.orders.push.{key}" in sidecar.log
    assert "Traceback" not in sidecar.log


def with_aiohttp(folder: Path, code: str) -> dict[str, str]:
    """An environment in which aiohttp is this code."""
    folder.mkdir()
    (folder / "aiohttp.py").write_text(code)
    return {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def test_without_its_library_a_sentence_says_how_to_get_it(tmp_path: Path) -> None:
    missing = "raise ModuleNotFoundError(\"No module named 'aiohttp'\", name='aiohttp')\n"
    sidecar = pushing(tmp_path, "http://127.0.0.1:1/", environ=with_aiohttp(tmp_path / "path", missing))
    sidecar.launch()
    assert sidecar.wait() == 1
    assert "pip install 'offramp-sidecar[push]'" in sidecar.log
    assert "Traceback" not in sidecar.log


def test_a_sidecar_that_pushes_nothing_loads_no_library_for_it(tmp_path: Path) -> None:
    with Sidecar(tmp_path, environ=with_aiohttp(tmp_path / "path", "raise AssertionError('loaded')\n")) as sidecar:
        assert "loaded" not in sidecar.log


@pytest.mark.parametrize("mode", ["cloudevents", "cloudevents-structured", "cloudevents-binary"])
def test_an_app_made_for_cloudevents_reads_every_mode_with_the_sdk(tmp_path: Path, mode: str) -> None:
    with running(tmp_path, {"format": mode}) as (app, sidecar):
        sidecar.publish("orders", [b'{"n": 1}', b'{"n": 2}'], lane=ONE)
        settled(sidecar, 2)
        data = []
        for at, call in enumerate(app.events()):
            if mode == "cloudevents":
                assert call["headers"]["content-type"].startswith("application/cloudevents-batch+json")
                parts = app.body(at).removeprefix(b"[").removesuffix(b"]").split(b"},{")
                assert len(parts) == 2
                continue
            event = from_http_event(HTTPMessage(call["headers"], app.body(at)))
            data.append(event.get_data())
            assert event.get_type() == "offramp.record"
        if mode != "cloudevents":
            assert sorted(one["n"] for one in data) == [1, 2]


def test_what_the_app_answers_is_published_before_its_batch_is_acked(tmp_path: Path) -> None:
    push = {"format": "raw", "reply_topic": "answers"}
    with App(tmp_path) as app:
        sidecar = pushing(tmp_path, app.url, push)
        sidecar.settings["subscriptions"]["answers"] = {
            "topics": ["answers"], **QUICK, "push": {"url": app.url, "format": "json"}
        }  # fmt: skip
        with sidecar:
            app.answer(a={"body": "echo", "headers": {"content-type": "text/plain"}})
            sidecar.publish("orders", texts("a"), lane=ONE)
            eventually(lambda: "reply to a" in app.done(), "the reply was published, and pushed in turn")
            settled(sidecar, 1)
            (record,) = app.records_of("reply to a")
            headers = {header["name"]: header["value"] for header in record["headers"]}
            assert headers == {"offramp-in-reply-to": "orders/0/0", "content-type": "text/plain"}
            assert app.calls().count(["a"]) == 1
