"""Where the sidecar is, and how a client proves who it is."""

import pickle
from pathlib import Path
from typing import Any

import pytest

import offramp
from offramp import aio
from offramp.channel import Access, is_local
from offramp.options import Options

VARIABLES = ("ADDRESS", "TOKEN", "TOKEN_FILE", "CA", "CERTIFICATE", "KEY", "SERVER_NAME")


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"OFFRAMP_{name}", raising=False)


def test_the_address_is_as_said_or_the_environments_or_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Access().target == "unix:/run/offramp/offramp.sock"
    monkeypatch.setenv("OFFRAMP_ADDRESS", "/tmp/o.sock")
    assert Access().target == "unix:/tmp/o.sock"
    assert Access(address="127.0.0.1:4770").target == "127.0.0.1:4770"


@pytest.mark.parametrize(
    ("target", "local"),
    [
        ("unix:/run/offramp/offramp.sock", True),
        ("127.0.0.1:4770", True),
        ("127.9.9.9:4770", True),
        ("localhost:4770", True),
        ("[::1]:4770", True),
        ("dns:///localhost:4770", True),
        ("sidecar.example:4770", False),
        ("10.0.0.1:4770", False),
        ("[fd00::1]:4770", False),
    ],
)
def test_tls_and_pings_are_only_for_sidecars_on_another_host(target: str, local: bool) -> None:
    access = Access(address=target)
    assert is_local(target) is local
    assert (access._credentials() is None) is local
    assert (dict(access._options(4096))["grpc.keepalive_time_ms"] == 2**31 - 1) is local


def test_a_loopback_address_is_tls_if_somebody_is_to_be_trusted(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    assert Access(address="127.0.0.1:1", ca=str(ca))._credentials() is not None
    assert Access(address="127.0.0.1:1", ca=ca.read_text())._credentials() is not None


def test_no_token_is_shown_without_one() -> None:
    assert Access().metadata() == ()


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("/run/o.sock", "unix:/run/o.sock"),
        ("./run/o.sock", "unix:./run/o.sock"),
        ("../o.sock", "unix:../o.sock"),
        ("unix:o.sock", "unix:o.sock"),
        ("[::1]:4770", "[::1]:4770"),
        ("sidecar.orders.svc:4770", "sidecar.orders.svc:4770"),
        ("dns:///sidecars:4770", "dns:///sidecars:4770"),
    ],
)
def test_an_address_is_a_path_or_a_host_with_a_port(address: str, target: str) -> None:
    assert Access(address=address).target == target


def test_what_is_said_counts_more_than_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_TOKEN", "of-the-environment")
    assert Access().metadata() == (("authorization", "Bearer of-the-environment"),)
    assert Access(token="said").metadata() == (("authorization", "Bearer said"),)
    file = tmp_path / "token"
    file.write_text("of-the-file\n")
    assert Access(token_file=str(file)).metadata() == (("authorization", "Bearer of-the-file"),)
    monkeypatch.setenv("OFFRAMP_TOKEN", "")
    monkeypatch.setenv("OFFRAMP_TOKEN_FILE", str(file))
    assert Access().metadata() == (("authorization", "Bearer of-the-file"),)


def test_a_token_file_is_read_again_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    access = Access(token_file=str(file))
    file.write_text("\n new \nolder\n")
    assert access.metadata() == (("authorization", "Bearer new"),)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"token": ""}, "token: that is not a token"),
        ({"token": "two words"}, "token: that is not a token"),
        ({"token": "umlaut-ä"}, "token: that is not a token"),
        ({"token": "line\nbreak"}, "token: that is not a token"),
        ({"token_file": "/nowhere/token"}, "token_file: /nowhere/token: No such file"),
        ({"address": "host:1", "ca": "/nowhere/ca"}, "ca: /nowhere/ca: No such file"),
        ({"address": "host:1", "ca": "/proc/self/status"}, "ca: /proc/self/status has no PEM in it"),
        ({"address": "localhost"}, 'address: "localhost" is neither unix:/path nor host:port'),
        ({"address": "localhost:abc"}, 'address: "localhost:abc" is neither'),
        ({"address": "http://localhost:4770"}, 'address: "http://localhost:4770" is neither'),
        ({"address": "::1:4770"}, 'address: "::1:4770" is neither'),
        ({"address": "unix:"}, 'address: "unix:" is neither'),
        ({"certificate": "/x"}, "key: a certificate and its key go together"),
        ({"key": "/x"}, "key: a certificate and its key go together"),
    ],
)
def test_what_cannot_prove_anything_is_refused_at_once_with_its_name(wrong: dict[str, Any], said: str) -> None:
    for make in (
        lambda: offramp.connect("orders", **wrong),
        lambda: aio.connect("orders", **wrong),
        lambda: offramp.Processes("orders", print, **wrong),
        lambda: offramp.Publisher(broker="local", **wrong),
        lambda: offramp.open_channel(**wrong),
    ):
        with pytest.raises(ValueError, match=said) as raised:
            make()
        assert wrong.get("token", "") in ("", "token") or wrong["token"] not in str(raised.value)


def test_nothing_that_is_logged_by_accident_shows_a_token() -> None:
    for thing in (Access(token="s3cret"), Options(subscription="orders", credit=1, token="s3cret")):
        assert "s3cret" not in repr(thing)
        assert "s3cret" not in str(thing)


def test_access_travels_to_other_processes() -> None:
    access = Access(address="127.0.0.1:1", token="s3cret")
    assert pickle.loads(pickle.dumps(access)) == access
