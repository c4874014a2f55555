"""What settings must be to each other. Each value is fine by itself when it comes here."""

import ipaddress
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations

from sidecar.config.build import keys_of
from sidecar.config.forms import Form, form_of, split_address
from sidecar.config.wording import did_you_mean, quoted
from sidecar.settings import HttpSettings, ListenSettings, SubscriptionSettings

#: puts a problem down for a key
Report = Callable[[Sequence[str], str], None]

#: the first times the number must not be above the second
_NOT_ABOVE = (
    ("lease.default", "lease.max", 1),
    ("retry.first", "retry.max", 1),
    ("outage.probe_first", "outage.probe_max", 1),
    # A batch that could never fill would always wait for the end of its linger time.
    ("batch.records", "window.records", 1),
    ("batch.records", "memory.records", 1),
    ("batch.bytes", "window.bytes", 1),
    ("batch.bytes", "memory.bytes", 1),
    ("window.records", "window.span", 1),
    # One fetch must fit into the half of the memory that all lanes have in common, or each would overshoot it.
    ("memory.poll_records", "memory.records", 2),
    ("memory.poll_bytes", "memory.bytes", 2),
)
_SHARES = {1: "", 2: "half of "}

#: what the kernel takes for the path of a socket, in bytes
_SOCKET_PATH_LIMIT = 107


def check_listeners(listen: ListenSettings, http: HttpSettings, report: Report) -> None:
    if not listen.socket and not listen.tcp:
        report(("listen", "socket"), "is empty, and so is listen.tcp: apps could not connect")
    if listen.socket.startswith("unix:"):
        report(("listen", "socket"), f"{quoted(listen.socket)} is not a path; write it without unix:")
    elif len(listen.socket.encode()) > _SOCKET_PATH_LIMIT:
        report(
            ("listen", "socket"), f"is longer than the {_SOCKET_PATH_LIMIT} bytes that the path of a socket can have"
        )
    if listen.tcp and not _is_loopback(listen.tcp):
        report(
            ("listen", "tcp"),
            f"{quoted(listen.tcp)} is open to other machines; it takes a loopback address such as 127.0.0.1:4770",
        )
    tcp, web = split_address(listen.tcp), split_address(http.address)
    if tcp is not None and tcp == web and tcp[1] != 0:
        report(("listen", "tcp"), f"{quoted(listen.tcp)} is the address of http.address, too")


def check_subscription(
    name: str, subscription: SubscriptionSettings, brokers: Collection[str] | None, report: Report
) -> None:
    """What a subscription must be by itself. Without brokers, which ones there are is not known."""
    s = subscription

    def wrong(key: str, text: str) -> None:
        report(("subscriptions", name, *key.split(".")), text)

    if brokers is not None and s.broker not in brokers:
        hint = did_you_mean(s.broker, brokers) or f"There is {', '.join(sorted(brokers))}."
        wrong("broker", f"{quoted(s.broker)} is not among brokers. {hint}")
    _check_topics(s, wrong)
    for low, high, share in _NOT_ABOVE:
        (value, form), (limit, _) = _value_of(s, low), _value_of(s, high)
        if value * share > limit:
            wrong(low, f"{form.show(value)} is more than {_SHARES[share]}{high}, which is {form.show(limit)}")


def check_fit(name: str, subscription: SubscriptionSettings, options: object, report: Report) -> None:
    """What the broker of a subscription has against it."""
    problems_with = getattr(options, "problems_with", None)
    if problems_with is not None:
        for key, text in problems_with(subscription):
            report(("subscriptions", name, *key.split(".")), text)


def check_together(subscriptions: Mapping[str, SubscriptionSettings], report: Report) -> None:
    """What two subscriptions of one broker would do to each other."""
    for (first, a), (second, b) in combinations(subscriptions.items(), 2):
        if a.broker != b.broker:
            continue
        shared = [topic for topic in b.topics if topic in a.topics]
        if a.group_name == b.group_name and shared:
            report(
                ("subscriptions", second, "topics"),
                f"{quoted(shared[0])} is consumed by {first} already, under the same group {quoted(a.group_name)}",
            )
        if a.retry_topic == b.retry_topic:
            report(
                ("subscriptions", second, "parking", "topic"),
                f"{quoted(b.retry_topic)} is the retry topic of {first}, too: each would take the other's records",
            )
        for name, one, another, other in ((first, a, second, b), (second, b, first, a)):
            if one.retry_topic in other.topics or one.retry_topic == other.dead_letter_topic:
                text = f"{quoted(one.retry_topic)} is used by {another}, too; it must be this group's own"
                report(("subscriptions", name, "parking", "topic"), text)


def _check_topics(s: SubscriptionSettings, wrong: Callable[[str, str], None]) -> None:
    for key, template, topic in (
        ("parking.topic", s.parking.topic, s.retry_topic),
        ("dead_letter.topic", s.dead_letter.topic, s.dead_letter_topic),
    ):
        rest = template.replace("{group}", "")
        if not topic:
            wrong(key, "is empty; it takes the name of a topic")
        elif "{" in rest or "}" in rest:
            wrong(key, f"{quoted(template)} has other braces than {{group}}, which is all that is replaced")
        if topic in s.topics:
            wrong(key, f"{quoted(topic)} is among the topics that the subscription consumes")
    if s.retry_topic == s.dead_letter_topic:
        wrong("dead_letter.topic", f"{quoted(s.dead_letter_topic)} is the retry topic, too; they must differ")


def _value_of(subscription: SubscriptionSettings, key: str) -> tuple[float, Form]:
    group, name = key.split(".")
    settings = getattr(subscription, group)
    cls: type = type(settings)
    form = form_of(keys_of(cls)[name][1])
    assert isinstance(form, Form)
    return getattr(settings, name), form


def _is_loopback(address: str) -> bool:
    parts = split_address(address)
    if parts is None or parts[0] == "localhost":
        return parts is not None
    try:
        return ipaddress.ip_address(parts[0]).is_loopback
    except ValueError:
        return False
