"""What options must be to each other, and which subscriptions they serve."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sidecar.brokers.pulsar import names
from sidecar.model.records import Order

if TYPE_CHECKING:
    from sidecar.brokers.pulsar.options import PulsarOptions
    from sidecar.settings import SubscriptionSettings

_URL = re.compile(r"pulsar(\+ssl)?://[^/?#]+/?")
_ADMIN_URL = re.compile(r"https?://[^/?#]+/?")
_NAMESPACE = re.compile(r"[^/]+/[^/]+")


def problems(options: "PulsarOptions") -> Iterator[str]:
    """What is wrong with the options together, a sentence each."""
    if not _URL.fullmatch(options.url):
        yield f'url: "{options.url}" is not like pulsar://host:6650 or pulsar+ssl://host:6651'
    if options.admin_url and not _ADMIN_URL.fullmatch(options.admin_url):
        yield f'admin_url: "{options.admin_url}" is not like http://host:8080'
    if not _NAMESPACE.fullmatch(options.namespace):
        yield f'namespace: "{options.namespace}" is not like tenant/namespace'
    if options.token and options.token_file:
        yield "token_file: there is a token, too; one of them is enough"
    if bool(options.tls_certificate) is not bool(options.tls_key):
        yield "tls_key: a certificate and its key go together"
    if options.tls_ca and not options.url.startswith("pulsar+ssl"):
        yield "tls_ca: the url is not pulsar+ssl://, so that there is nothing to trust"


def problems_with(options: "PulsarOptions", subscription: "SubscriptionSettings") -> Iterator[tuple[str, str]]:
    """A key of the subscription, and why it cannot be had."""
    kind = options.subscription_type.value
    if subscription.order is Order.LANE and kind in ("shared", "key_shared"):
        yield (
            "order",
            f'"lane" cannot be kept with subscription_type {kind}: several sidecars have records of a lane at the same '
            "time. Take failover or exclusive, or order key with key_shared",
        )
    if subscription.order is Order.KEY and kind == "shared":
        yield (
            "order",
            '"key" cannot be kept with subscription_type shared: records of a key go to different sidecars. Take '
            "key_shared",
        )
    if options.unacked_limit and subscription.window.records + options.receiver_queue > options.unacked_limit:
        room = options.unacked_limit - options.receiver_queue
        yield (
            "window.records",
            f"{subscription.window.records} and a receiver_queue of {options.receiver_queue} are more than the broker "
            f"lets one consumer have unacked (unacked_limit: {options.unacked_limit}). It takes at most {room}",
        )
    for topic in subscription.topics:
        if names.is_pattern(topic):
            try:
                names.pattern(topic, options.namespace)
            except (re.error, ValueError) as error:
                yield "topics", f'"{topic}" is not a pattern of topics: {error}'
