"""Rules for `push`."""

import pytest

from sidecar.settings import PushFormat, Seconds
from tests.unit.config.kit import load, problems

pytestmark = pytest.mark.usefixtures("folder")

URL = "url: 'http://app/'"


def said(push: str, more: str = "") -> list[str]:
    lines = problems(f"subscriptions: {{s: {{topics: [a], push: {{{push}}}{more}}}}}")
    return [line.removeprefix("c.yaml:1: subscriptions.s.push.") for line in lines]


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8080/orders", "https://app.example/a?b=c", "http://[::1]:80", "http+unix:///run/app.sock:/orders",
     "http+unix:///run/app.sock"],
)  # fmt: skip
def test_a_url_is_http_https_or_a_unix_socket(url: str) -> None:
    assert said(f"url: '{url}'") == []


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("127.0.0.1:8080", "does not begin with http://, https://, http+unix://"),
        ("ftp://app/", "does not begin with"),
        ("http:///orders", "has no host"),
        ("http://app:99999/", "is not a URL"),
        ("http://app:0/", "has port 0"),
        ("http://user:hush@app/", "put them into push.header_files"),
        ("http://app/#there", "has a fragment"),
        ("http://app/a b", "has a space"),
        ("http+unix://run/app.sock:/orders", "does not name a socket and a path"),
        ("http+unix:///run/app.sock:orders", "does not name a socket and a path"),
        (f"http+unix:///{'x' * 108}:/", "longer than the 107 bytes"),
    ],
)
def test_another_url_is_a_mistake(url: str, word: str) -> None:
    (line,) = said(f"url: '{url}'")
    assert line.startswith("url: ")
    assert word in line
    assert "hush" not in line


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("format: json", "url: is missing, though other keys of push are set"),
        (f"{URL}, format: xml", 'format: "xml" is not one of cloudevents'),
        (f"{URL}, timeout: 2h", "timeout: and push.settle_after are 7210s, which is more than lease.max (1h)"),
        (f"{URL}, reject_statuses: [500]", "reject_statuses: 500 is not a status of 400 to 499"),
        (f"{URL}, reject_statuses: [429]", "reject_statuses: 429 is not"),
        (f"{URL}, headers: {{'a b': c}}", 'headers: "a b" is not the name of a header'),
        (f"{URL}, headers: {{Content-Length: '3'}}", 'headers: "Content-Length" is a header that the sidecar sets'),
        (f'{URL}, headers: {{a: "b\\nc"}}', 'headers: "a" has a value of more than one line'),
        (f"{URL}, headers: {{a: b}}, header_files: {{A: /x}}", 'header_files: "a" is in push.headers, too'),
        (f"{URL}, tls_ca: /ca.pem", "tls_ca: is for an https URL"),
        (f"{URL}, reply_topic: a", 'reply_topic: "a" is a topic of the subscription itself'),
    ],
)
def test_a_mistake_names_its_key(keys: str, line: str) -> None:
    (found,) = said(keys)
    assert found.startswith(line)


FPM = "fastcgi: 'unix:/run/fpm.sock', script: /app/worker.php"


def test_fastcgi_takes_a_socket_or_an_address_and_a_script() -> None:
    assert said(FPM) == []
    assert said("fastcgi: '127.0.0.1:9000', script: /app/worker.php, format: json, concurrency: 4") == []


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("fastcgi: 'unix:/run/fpm.sock'", 'script: "" is not the whole path of a script'),
        ("script: /app/worker.php", "url: is missing, though other keys of push are set"),
        (f"{URL}, script: /app/worker.php", "script: is for push.fastcgi"),
        (f"{FPM}, {URL}", "url: push.fastcgi and push.grpc exclude each other"),
        ("fastcgi: /run/fpm.sock, script: /a", 'fastcgi: "/run/fpm.sock" is neither unix:'),
        ("fastcgi: 'unix:fpm.sock', script: /a", 'fastcgi: "unix:fpm.sock" does not name a socket by its whole path'),
        (f"{FPM}, format: raw", 'format: "raw" is for push.url'),
        (f"{FPM}, reply_topic: r", "reply_topic: is for push.url"),
        (f"{FPM}, tls_ca: /x", "tls_ca: is for an https URL"),
    ],
)
def test_a_mistake_about_fastcgi_names_its_key(keys: str, line: str) -> None:
    (found,) = said(keys)
    assert found.startswith(line)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("grpc: 'app'", 'grpc: "app" is neither unix:'),
        ("grpc: 'app:1', format: json", "format: has no effect with push.grpc"),
        (f"grpc: 'app:1', {URL}", "url: push.fastcgi and push.grpc exclude each other"),
    ],
)
def test_a_mistake_about_grpc_names_its_key(keys: str, line: str) -> None:
    (found,) = said(keys)
    assert found.startswith(line)
    assert said("grpc: 'app:50051', headers: {a: b}") == []


def test_ranges_cannot_be_pushed() -> None:
    (line,) = problems(f"subscriptions: {{s: {{topics: [a], mode: ranges, push: {{{URL}}}}}}}")
    assert "subscriptions.s.push: has no effect with `mode: ranges`" in line


def test_all_keys_load() -> None:
    keys = "format: raw, concurrency: 3, timeout: 5s, reject_statuses: [404], headers: {a: b}, header_files: {c: /d}"
    push = load(f"subscriptions: {{s: {{topics: [a], push: {{{URL}, {keys}}}}}}}").subscriptions["s"].push
    assert (push.format, push.concurrency, push.timeout) == (PushFormat.RAW, 3, Seconds(5.0))
    assert (push.reject_statuses, push.headers, push.header_files) == ((404,), {"a": "b"}, {"c": "/d"})
