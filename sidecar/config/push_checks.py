"""Rules for `push` of a subscription."""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from sidecar.config.messages import quoted
from sidecar.model.addresses import MAX_SOCKET_PATH, split_address
from sidecar.model.units import show_duration
from sidecar.settings import PushFormat, PushSettings, SubscriptionSettings

#: records a problem with a key of the subscription
Wrong = Callable[[str, str], None]

_SCHEMES = ("http", "https", "http+unix")
_EXAMPLE = "it is like http://127.0.0.1:8080/orders or http+unix:///run/app/app.sock:/orders"
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
#: what the sidecar sets itself
_OWN_HEADERS = re.compile(
    r"(?:offramp|webhook|ce)-.*|content-(?:type|length)|transfer-encoding|connection|host|expect|accept-encoding"
    r"|traceparent|tracestate",
    re.IGNORECASE,
)


def check_push(s: SubscriptionSettings, wrong: Wrong) -> None:
    push = s.push
    if not push.enabled:
        _check_unused(push, wrong)
        return
    if sum(map(bool, (push.url, push.fastcgi, push.grpc))) > 1:
        wrong("push.url", "push.fastcgi and push.grpc exclude each other: a subscription is pushed to one of them")
        return
    if push.fastcgi:
        _check_fastcgi(push, wrong)
    elif push.grpc:
        _check_grpc(push, wrong)
    elif problem := _problem_with_url(push.url):
        wrong("push.url", f"{quoted(push.url)} {problem}")
    if push.script and not push.fastcgi:
        wrong("push.script", "is for push.fastcgi, which is empty")
    if push.tls_ca and not push.url.startswith("https:"):
        wrong("push.tls_ca", f"is for an https URL, and push.url is {quoted(push.url) if push.url else 'empty'}")
    if push.timeout + push.settle_after > s.lease.max:
        longest = show_duration(push.timeout + push.settle_after)
        limit = show_duration(s.lease.max)
        wrong("push.timeout", f"and push.settle_after are {longest}, which is more than lease.max ({limit})")
    for status in push.reject_statuses:
        if not 400 <= status <= 499 or status == 429:
            wrong("push.reject_statuses", f"{status} is not a status of 400 to 499 other than 429")
    _check_headers(push, wrong)
    if push.reply_topic and push.reply_topic in (*s.topics, s.retry_topic, s.dead_letter_topic):
        wrong("push.reply_topic", f"{quoted(push.reply_topic)} is a topic of the subscription itself")


def _check_unused(push: PushSettings, wrong: Wrong) -> None:
    if push != PushSettings():
        wrong("push.url", f"is missing, though other keys of push are set; {_EXAMPLE}")


def _check_fastcgi(push: PushSettings, wrong: Wrong) -> None:
    _check_target("push.fastcgi", push.fastcgi, wrong)
    if not push.script.startswith("/"):
        wrong("push.script", f"{quoted(push.script)} is not the whole path of a script, such as /app/public/worker.php")
    if push.reply_topic:
        wrong("push.reply_topic", "is for push.url; what a script answers over FastCGI is its result")
    if push.format not in (PushFormat.JSON, PushSettings().format):
        wrong("push.format", f"{quoted(push.format)} is for push.url; with push.fastcgi, batches go in JSON")


def _check_grpc(push: PushSettings, wrong: Wrong) -> None:
    _check_target("push.grpc", push.grpc, wrong)
    defaults = PushSettings()
    for key in ("format", "reply_topic", "signing_secret_file", "header_files", "reject_statuses"):
        if getattr(push, key) != getattr(defaults, key):
            wrong(f"push.{key}", "has no effect with push.grpc; leave it out")


def _check_target(key: str, target: str, wrong: Wrong) -> None:
    path = target.removeprefix("unix:")
    if path == target and split_address(path) is None:
        wrong(key, f"{quoted(path)} is neither unix:/path/of/a.sock nor host:port")
    elif path != target and not path.startswith("/"):
        wrong(key, f"{quoted(target)} does not name a socket by its whole path")
    elif path != target and len(path.encode()) > MAX_SOCKET_PATH:
        wrong(key, f"is longer than the {MAX_SOCKET_PATH} bytes that the path of a socket can have")


def _problem_with_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is not a URL: {error}"
    if parts.scheme not in _SCHEMES:
        return f"does not begin with {', '.join(f'{one}://' for one in _SCHEMES)}; {_EXAMPLE}"
    if parts.username is not None or parts.password is not None:
        return "has a user or a password in it; put them into push.header_files, as authorization"
    if parts.fragment:
        return "has a fragment (#), which is not sent"
    if any(char.isspace() or not char.isprintable() for char in url):
        return "has a space or a control character in it"
    if parts.scheme == "http+unix":
        socket, colon, path = parts.path.partition(":")
        if parts.netloc or not socket.startswith("/") or (colon and not path.startswith("/")):
            return f"does not name a socket and a path; {_EXAMPLE}"
        if len(socket.encode()) > MAX_SOCKET_PATH:
            return f"names a socket whose path is longer than the {MAX_SOCKET_PATH} bytes that it can have"
        return ""
    if not parts.hostname:
        return f"has no host; {_EXAMPLE}"
    return "has port 0" if port == 0 else ""


def _check_headers(push: PushSettings, wrong: Wrong) -> None:
    for key, names in (("push.headers", push.headers), ("push.header_files", push.header_files)):
        for name in names:
            if not _HEADER_NAME.fullmatch(name):
                wrong(key, f"{quoted(name)} is not the name of a header")
            elif _OWN_HEADERS.fullmatch(name):
                wrong(key, f"{quoted(name)} is a header that the sidecar sets itself")
    for name, value in push.headers.items():
        if any(char in value for char in "\r\n\0"):
            wrong("push.headers", f"{quoted(name)} has a value of more than one line")
    both = {name.lower() for name in push.headers} & {name.lower() for name in push.header_files}
    for name in sorted(both):
        wrong("push.header_files", f"{quoted(name)} is in push.headers, too")
