"""Certificates, keys and tokens that cannot be used: one clear sentence each, and no start."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.model.errors import StartError
from sidecar.server.auth import certificates, credential_store, tokens
from sidecar.server.auth.credential_store import CredentialStore
from sidecar.server.auth.tokens import Tokens
from sidecar.settings import ClientSettings, ListenSettings
from tests.e2e.harness import WAIT_TIMEOUT
from tests.security.authority import Authority, Pair
from tests.security.kit import TOKENS, Secured, secret_file


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "it")


def complaint(pair: Pair, client_ca: Path | None = None) -> str:
    listen = ListenSettings(
        tcp="0.0.0.0:0",
        tls_certificate=str(pair.certificate),
        tls_key=str(pair.key),
        tls_client_ca=str(client_ca or ""),
    )
    with pytest.raises(StartError) as raised:
        CredentialStore(listen, {})
    return str(raised.value)


def test_a_good_pair_is_taken(authority: Authority) -> None:
    pair = authority.sign("localhost")
    listen = ListenSettings(tls_certificate=str(pair.certificate), tls_key=str(pair.key))
    assert CredentialStore(listen, {}).troubles() == ()


def test_an_expired_certificate(authority: Authority) -> None:
    pair = authority.sign("localhost", ends="20200202000000Z")
    assert complaint(pair) == f"listen.tls_certificate: {pair.certificate} has expired, at 2020-02-02T00:00:00Z"


def test_a_certificate_of_the_future(authority: Authority) -> None:
    pair = authority.sign("localhost", starts="20490101000000Z")
    said = f"listen.tls_certificate: {pair.certificate} is not valid yet; it will be at 2049-01-01T00:00:00Z"
    assert complaint(pair) == said


def test_a_certificate_and_another_ones_key(authority: Authority) -> None:
    pair = Pair(authority.sign("localhost").certificate, authority.sign("localhost").key)
    assert complaint(pair) == f"listen.tls_key: {pair.key} is not the key of the certificate {pair.certificate}"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda pair: pair.certificate.unlink(),
            "listen.tls_certificate: {c} cannot be read: No such file or directory",
        ),
        (lambda pair: pair.key.unlink(), "listen.tls_key: {k} cannot be read: No such file or directory"),
        (lambda pair: pair.certificate.write_text(" \n"), "listen.tls_certificate: {c} is empty"),
        (lambda pair: pair.key.write_text(""), "listen.tls_key: {k} is empty"),
        (lambda pair: pair.certificate.write_text("x"), "listen.tls_certificate: {c} has no certificate in PEM form"),
        (lambda pair: pair.key.write_text("x"), "listen.tls_key: {k} has no private key in PEM form"),
        (
            lambda pair: pair.key.chmod(0o644),
            "listen.tls_key: {k} is accessible to every user (mode 0644); fix this with chmod o-rwx or, for a Secret "
            "of Kubernetes, with defaultMode: 0440 and an fsGroup",
        ),
        (lambda pair: (pair.key.unlink(), pair.key.mkdir()), "listen.tls_key: {k} cannot be read: Is a directory"),
        (lambda pair: (pair.key.unlink(), os.mkfifo(pair.key)), "listen.tls_key: {k} is not a file"),
    ],
)
def test_files_that_are_not_what_they_should_be(
    authority: Authority, spoil: Callable[[Pair], object], said: str
) -> None:
    pair = authority.sign("localhost")
    spoil(pair)
    assert complaint(pair) == said.format(c=pair.certificate, k=pair.key)


def test_an_encrypted_key_is_refused_instead_of_asking_the_terminal(authority: Authority) -> None:
    pair = authority.sign("localhost")
    head = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF\n"
    pair.key.write_text(f"-----BEGIN EC PRIVATE KEY-----\n{head}\nAAAA\n-----END EC PRIVATE KEY-----\n")
    assert complaint(pair) == "listen.tls_key: the key is encrypted; use one without a password"


def test_authorities_of_clients_that_are_none(authority: Authority, tmp_path: Path) -> None:
    nonsense = tmp_path / "ca.pem"
    nonsense.write_text("x")
    pair = authority.sign("localhost")
    assert complaint(pair, nonsense) == f"listen.tls_client_ca: {nonsense} has no certificate in PEM form"


@pytest.mark.parametrize("gone", ["certificate", "key", "authorities"])
def test_a_file_that_goes_away_between_its_reading_and_its_check(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    pair = authority.sign("localhost")
    authorities = tmp_path / "ca.pem"
    authorities.write_bytes(authority.certificate.read_bytes())
    read = certificates._contents

    def and_remove(listen: ListenSettings) -> tuple[bytes, bytes, bytes | None]:
        contents = read(listen)
        {"certificate": pair.certificate, "key": pair.key, "authorities": authorities}[gone].unlink()
        return contents

    monkeypatch.setattr(certificates, "_contents", and_remove)
    assert complaint(pair, authorities).endswith("cannot be read: No such file or directory")


def test_an_unforeseen_failure_of_a_check_is_logged_once_and_the_checks_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = secret_file(tmp_path / "token", TOKENS["app"])
    keys = CredentialStore(ListenSettings(), {"app": ClientSettings(name="app", token_file=str(path), consume=("*",))})
    reads = []
    enough = asyncio.Event()

    def fail(clients: object) -> Tokens:
        reads.append(clients)
        if len(reads) == 3:
            loop.call_soon_threadsafe(enough.set)
        raise MemoryError("the machine is full")

    async def body() -> None:
        running = asyncio.create_task(keys.run())
        async with asyncio.timeout(WAIT_TIMEOUT):
            await enough.wait()
        assert not running.done()
        running.cancel()

    monkeypatch.setattr(tokens, "read", fail)
    monkeypatch.setattr(credential_store, "_CHECK_INTERVAL", 0.0)
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        runner.run(body())
    assert len([record for record in caplog.records if record.exc_info]) == 1


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (None, 0, "cannot be read: No such file or directory"),
        ("", 0o600, "is empty"),
        ("\n \n", 0o600, "is empty"),
        ("0123456789abcdef", 0o604, "is accessible to every user (mode 0604); fix this with chmod o-rwx or"),
        ("tooshort", 0o600, "line 1: a token has 16 to 4096 characters; this one has 8"),
        ("\n0123456789abcdef\nhush hush hush hush hush\n", 0o600, "line 3: a token is printable ASCII without spaces"),
        (
            "x" * (1 << 20) + "y",
            0o600,
            "has more than 1048576 bytes, which is too large for a certificate or a secret",
        ),
    ],
)
def test_token_files_that_hold_no_token(tmp_path: Path, content: str | None, mode: int, said: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        secret_file(path, content, mode)
    with pytest.raises(StartError) as raised:
        CredentialStore(ListenSettings(), {"app": ClientSettings(name="app", token_file=str(path), consume=("*",))})
    assert str(raised.value).startswith(f"clients.app.token_file: {path}")
    assert said in str(raised.value)
    assert not any(word in str(raised.value) for word in (content or "").split())


def test_a_token_belongs_to_one_client(tmp_path: Path) -> None:
    path = secret_file(tmp_path / "token", TOKENS["app"])
    clients = {name: ClientSettings(name=name, token_file=str(path), consume=("*",)) for name in ("a", "b")}
    with pytest.raises(StartError) as raised:
        CredentialStore(ListenSettings(), clients)
    said = f'clients.b.token_file: {path}, line 1: this token is already one of client "a"'
    assert str(raised.value) == said


def test_a_sidecar_with_a_bad_file_does_not_start_and_says_why(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    (tmp_path / "app.token").chmod(0o644)
    sidecar = secured.sidecar()
    sidecar.launch()
    assert sidecar.wait() == 1
    errors = [event for event in sidecar.events() if event["level"] == "error"]
    assert [event["message"] for event in errors] == ["cannot start"]
    assert errors[0]["error"].startswith(
        f"clients.app.token_file: {tmp_path}/app.token is accessible to every user (mode 0644)"
    )
    assert not sidecar.socket.exists()
