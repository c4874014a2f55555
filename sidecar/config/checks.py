"""What settings must be to each other. Each value is fine by itself when it comes here."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from operator import attrgetter

from sidecar.brokers.base import BrokerOptions, is_pattern
from sidecar.config.build import keys_of
from sidecar.config.formats import Format, format_of
from sidecar.config.wording import did_you_mean, quoted
from sidecar.model.addresses import MAX_SOCKET_PATH, is_loopback, split_address
from sidecar.observability.tracing.choice import wrong_with
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

#: keys of a subscription that mean nothing where nothing is leased; of the retry topic, only its name does
_ONLY_LEASES = (
    "order", "oversized", "commit_every", "batch", "window", "memory", "lease", "retry", "outage", "budget",
    "parking.enabled", "parking.after", "parking.lanes",
)  # fmt: skip


def check_listeners(listen: ListenSettings, http: HttpSettings, report: Report) -> None:
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


def check_access(
    listen: ListenSettings, clients: Mapping[str, ClientSettings], subscriptions: Collection[str], report: Report
) -> None:
    """Who may come in. What the files hold is looked at when the sidecar starts."""
    for first, second in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        if getattr(listen, first) and not getattr(listen, second):
            report(("listen", second), f"is missing, and there is {first}: a certificate and its key go together")
    if listen.tls_client_ca and not listen.tls_certificate:
        report(("listen", "tls_client_ca"), "asks clients for certificates, which takes a tls_certificate first")
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
        text = f"{quoted(listen.tcp)} is open to other machines, which takes {' and '.join(lacks)}"
        report(("listen", "tcp"), f"{text}; without, it takes a loopback address such as 127.0.0.1:4770")


def _check_client(name: str, client: ClientSettings, subscriptions: Collection[str], report: Report) -> None:
    if not client.token_file:
        report(("clients", name, "token_file"), "is empty; it takes the path of a file")
    if not any(getattr(client, right) for right in Right):
        report(("clients", name), f"has no right: give it some of {', '.join(Right)}")
    for right in Right:
        for subscription in getattr(client, right):
            if subscription != "*" and subscription not in subscriptions:
                known = did_you_mean(subscription, subscriptions) or f"There is {_listed(subscriptions)}, or * for all."
                report(("clients", name, right), f"{quoted(subscription)} is not among subscriptions. {known}")


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def check_tracing(settings: TracingSettings, report: Report) -> None:
    if wrong := wrong_with(settings.endpoint):
        report(("tracing", "endpoint"), f"{quoted(settings.endpoint)} {wrong}")


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
    _check_mode(s, wrong)
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


def check_fit(name: str, subscription: SubscriptionSettings, broker: BrokerSettings, report: Report) -> None:
    """Whether the broker of a subscription can serve it."""
    options: BrokerOptions = broker.options
    if not options.traits.matches_patterns:
        for topic in filter(is_pattern, subscription.topics):
            text = f"{quoted(topic)} is a pattern, and a broker of type {broker.type} takes names only"
            report(("subscriptions", name, "topics"), text)
    for key, text in options.problems_with(subscription):
        report(("subscriptions", name, *key.split(".")), text)


def check_machine(name: str, options: BrokerOptions, environ: Mapping[str, str], report: Report) -> None:
    """Whether a broker can run on this machine."""
    for key, text in options.problems_here(environ):
        report(("brokers", name, key), text)


def check_together(subscriptions: Mapping[str, SubscriptionSettings], report: Report) -> None:
    """What two subscriptions of one broker would do to each other."""
    for (first, a), (second, b) in combinations(subscriptions.items(), 2):
        if a.broker != b.broker:
            continue
        if a.group_name == b.group_name and SubscriptionMode.RANGES in (a.mode, b.mode):
            text = (
                f"{quoted(b.group_name)} is the group of {first}, too; one that is read by ranges is read by one alone"
            )
            report(("subscriptions", second, "group"), text)
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


def _value_of(subscription: SubscriptionSettings, key: str) -> tuple[float, Format]:
    group, name = key.split(".")
    settings = getattr(subscription, group)
    cls: type = type(settings)
    fmt = format_of(keys_of(cls)[name][1])
    assert isinstance(fmt, Format)
    return getattr(settings, name), fmt
