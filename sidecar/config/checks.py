"""Rules between settings. Each value is valid by itself when it gets here."""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from itertools import combinations
from operator import attrgetter
from typing import Any

from sidecar.brokers.base import BrokerOptions, is_pattern
from sidecar.config.build import WRONG, keys_of
from sidecar.config.formats import Format, format_of
from sidecar.config.messages import did_you_mean, quoted
from sidecar.config.push_checks import check_push
from sidecar.config.tree import Node, Problems, origin_of
from sidecar.model.addresses import MAX_SOCKET_PATH, is_loopback, split_address
from sidecar.observability.tracing.tracer import problem_with
from sidecar.settings import (
    Authenticate,
    BrokerSettings,
    ClientSettings,
    HttpSettings,
    ListenSettings,
    Right,
    SubscriptionMode,
    SubscriptionSettings,
    TracingSettings,
)

#: records a problem with a key
Report = Callable[[Sequence[str], str], None]

#: the first setting times the number must not exceed the second
_NOT_ABOVE = (
    ("lease.default", "lease.max", 1),
    ("retry.first", "retry.max", 1),
    ("outage.probe_first", "outage.probe_max", 1),
    # A batch that can never be full would always wait for its whole linger time.
    ("batch.records", "window.records", 1),
    ("batch.records", "memory.records", 1),
    ("batch.bytes", "window.bytes", 1),
    ("batch.bytes", "memory.bytes", 1),
    ("window.records", "window.span", 1),
    # One fetch must fit into the half of the memory that the lanes share, or each fetch would exceed it.
    ("memory.poll_records", "memory.records", 2),
    ("memory.poll_bytes", "memory.bytes", 2),
)
_SHARES = {1: "", 2: "half of "}

#: keys of a subscription that have no effect with `mode: ranges`; of the retry topic, only the name has one
_ONLY_LEASES = (
    "order", "oversized", "commit_every", "batch", "window", "memory", "lease", "retry", "outage", "budget",
    "parking.enabled", "parking.after", "parking.lanes", "push",
)  # fmt: skip


def check(values: Mapping[str, Any], tree: Node, environ: Mapping[str, str], problems: Problems) -> None:
    """Check the settings that could be built; `WRONG` stands for the others, whose errors are reported already."""

    def report(path: Sequence[str], text: str) -> None:
        problems.add(origin_of(tree, path), path, text)

    listen, http = values.get("listen", ListenSettings()), values.get("http", HttpSettings())
    if listen is not WRONG and http is not WRONG:
        _check_listeners(listen, http, report)
    tracing = values.get("tracing", TracingSettings())
    if tracing is not WRONG and (text := problem_with(tracing.endpoint)):
        report(("tracing", "endpoint"), f"{quoted(tracing.endpoint)} {text}")
    brokers, subscriptions = values.get("brokers", {}), values.get("subscriptions", {})
    for name, configured in brokers.items() if brokers is not WRONG else ():
        for key, text in configured.options.problems_here(environ) if configured is not WRONG else ():
            report(("brokers", name, key), text)
    clients = values.get("clients", {})
    if listen is not WRONG and clients is not WRONG and subscriptions is not WRONG and WRONG not in clients.values():
        _check_access(listen, clients, subscriptions, report)
    if subscriptions is WRONG:
        return
    sound: dict[str, SubscriptionSettings] = {name: s for name, s in subscriptions.items() if s is not WRONG}
    for name, subscription in sound.items():
        # A broker with errors counts as existing.
        _check_subscription(name, subscription, {*brokers, "local"} if brokers is not WRONG else None, report)
        broker = brokers.get(subscription.broker, WRONG) if brokers is not WRONG else WRONG
        if broker is not WRONG:
            _check_fit(name, subscription, broker, report)
    shared = {
        name
        for name, broker in (brokers.items() if brokers is not WRONG else ())
        if broker is not WRONG and not broker.options.traits.groups_are_independent
    }
    _check_together(sound, shared, report)


def _check_listeners(listen: ListenSettings, http: HttpSettings, report: Report) -> None:
    if not listen.socket and not listen.tcp:
        report(("listen", "socket"), "is empty, and so is listen.tcp: apps could not connect")
    if listen.socket.startswith("unix:"):
        report(("listen", "socket"), f"{quoted(listen.socket)} is not a path; write it without unix:")
    elif len(listen.socket.encode()) > MAX_SOCKET_PATH:
        report(("listen", "socket"), f"is longer than the {MAX_SOCKET_PATH} bytes that the path of a socket can have")
    if listen.admin_socket and listen.admin_socket == listen.socket:
        report(("listen", "admin_socket"), f"{quoted(listen.socket)} is listen.socket, which is for apps")
    tcp, web = split_address(listen.tcp), split_address(http.address)
    if tcp is not None and tcp == web and tcp[1] != 0:
        report(("listen", "tcp"), f"{quoted(listen.tcp)} is the address of http.address, too")


def _check_access(
    listen: ListenSettings, clients: Mapping[str, ClientSettings], subscriptions: Collection[str], report: Report
) -> None:
    """Who may call. The files themselves are checked when the sidecar starts."""
    for first, second in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        if getattr(listen, first) and not getattr(listen, second):
            report(("listen", second), f"is missing, but {first} is set: a certificate and its key go together")
    if listen.tls_client_ca and not listen.tls_certificate:
        report(("listen", "tls_client_ca"), "asks clients for certificates, which requires tls_certificate")
    if listen.tls_certificate and not listen.tcp:
        report(("listen", "tls_certificate"), "is for listen.tcp, which is empty")
    if listen.tcp and not is_loopback(listen.tcp):
        _check_network(listen, clients, report)
    if listen.authenticate is not Authenticate.NETWORK and not clients:
        report(("listen", "authenticate"), f"is {listen.authenticate}, but there are no clients with tokens")
    for name, client in clients.items():
        _check_client(name, client, subscriptions, report)


def _check_network(listen: ListenSettings, clients: Mapping[str, ClientSettings], report: Report) -> None:
    lacks = []
    if not listen.tls_certificate:
        lacks.append("TLS (listen.tls_certificate and listen.tls_key)")
    if not clients and not listen.tls_client_ca:
        lacks.append("tokens (clients) or certificates of clients (listen.tls_client_ca)")
    if lacks:
        text = f"{quoted(listen.tcp)} can be reached from other machines, which requires {' and '.join(lacks)}"
        report(("listen", "tcp"), f"{text}; otherwise use a loopback address such as 127.0.0.1:4770")


def _check_client(name: str, client: ClientSettings, subscriptions: Collection[str], report: Report) -> None:
    if not client.token_file:
        report(("clients", name, "token_file"), "is empty; it takes the path of a file")
    if not any(getattr(client, right) for right in Right):
        report(("clients", name), f"has no rights: give it some of {', '.join(Right)}")
    for right in Right:
        for subscription in getattr(client, right):
            if subscription != "*" and subscription not in subscriptions:
                known = did_you_mean(subscription, subscriptions) or f"There is {_listed(subscriptions)}, or * for all."
                report(("clients", name, right), f"{quoted(subscription)} is not among subscriptions. {known}")


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _check_subscription(
    name: str, subscription: SubscriptionSettings, brokers: Collection[str] | None, report: Report
) -> None:
    """Rules within one subscription. `brokers` is None if the brokers could not be built."""
    s = subscription

    def wrong(key: str, text: str) -> None:
        report(("subscriptions", name, *key.split(".")), text)

    if brokers is not None and s.broker not in brokers:
        hint = did_you_mean(s.broker, brokers) or f"There is {', '.join(sorted(brokers))}."
        wrong("broker", f"{quoted(s.broker)} is not among brokers. {hint}")
    _check_topics(s, wrong)
    _check_mode(s, wrong)
    check_push(s, wrong)
    for low, high, share in _NOT_ABOVE:
        (value, fmt), (limit, _) = _value_of(s, low), _value_of(s, high)
        if value * share > limit:
            wrong(low, f"{fmt.show(value)} is more than {_SHARES[share]}{high}, which is {fmt.show(limit)}")


def _check_mode(s: SubscriptionSettings, wrong: Callable[[str, str], None]) -> None:
    if s.mode is not SubscriptionMode.RANGES:
        return
    defaults = SubscriptionSettings(topics=s.topics)
    for key in _ONLY_LEASES:
        if attrgetter(key)(s) != attrgetter(key)(defaults):
            wrong(key, "has no effect with `mode: ranges`, where nothing is leased; leave it out")


def _check_fit(name: str, subscription: SubscriptionSettings, broker: BrokerSettings, report: Report) -> None:
    """Whether its broker can serve a subscription."""
    options: BrokerOptions = broker.options
    if not options.traits.matches_patterns:
        for topic in filter(is_pattern, subscription.topics):
            text = f"{quoted(topic)} is a pattern, and a broker of type {broker.type} takes names only"
            report(("subscriptions", name, "topics"), text)
    for key, text in options.problems_with(subscription):
        report(("subscriptions", name, *key.split(".")), text)


def _check_together(subscriptions: Mapping[str, SubscriptionSettings], shared_by: Set[str], report: Report) -> None:
    """Conflicts between two subscriptions of one broker. `shared_by`: brokers on which all groups share a topic."""
    for (first, a), (second, b) in combinations(subscriptions.items(), 2):
        if a.broker != b.broker:
            continue
        if a.group_name == b.group_name and SubscriptionMode.RANGES in (a.mode, b.mode):
            text = f"{quoted(b.group_name)} is the group of {first}, too; `mode: ranges` needs a group of its own"
            report(("subscriptions", second, "group"), text)
            continue
        shared = [topic for topic in b.topics if topic in a.topics]
        if a.group_name == b.group_name and shared:
            report(
                ("subscriptions", second, "topics"),
                f"{quoted(shared[0])} is consumed by {first} already, under the same group {quoted(a.group_name)}",
            )
        elif shared and b.broker in shared_by:
            report(
                ("subscriptions", second, "topics"),
                f"{quoted(shared[0])} is consumed by {first} already, and all who consume a topic of broker {b.broker} "
                "share its records: each would get a part of them. Let the broker copy them to a queue for each",
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
            wrong(key, f"{quoted(template)} has braces other than {{group}}, the only placeholder")
        if topic in s.topics:
            wrong(key, f"{quoted(topic)} is among the topics that the subscription consumes")
    if s.retry_topic == s.dead_letter_topic:
        wrong("dead_letter.topic", f"{quoted(s.dead_letter_topic)} is the retry topic, too; they must differ")


def _value_of(subscription: SubscriptionSettings, key: str) -> tuple[float, Format]:
    group, name = key.split(".")
    settings = getattr(subscription, group)
    cls: type = type(settings)
    fmt = format_of(keys_of(cls)[name][1])
    assert isinstance(fmt, Format)
    return getattr(settings, name), fmt
