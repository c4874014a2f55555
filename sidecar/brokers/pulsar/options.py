"""What can be configured for a broker of type `pulsar`, and checks of it."""

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from sidecar.brokers.base import BrokerOptions, Traits, is_pattern
from sidecar.brokers.pulsar.topics import parse_pattern
from sidecar.model.errors import ConfigError
from sidecar.model.records import Order
from sidecar.settings import Seconds, setting

if TYPE_CHECKING:
    from sidecar.settings import SubscriptionSettings

_URL = re.compile(r"pulsar(\+ssl)?://[^/?#]+/?")
_ADMIN_URL = re.compile(r"https?://[^/?#]+/?")
_NAMESPACE = re.compile(r"[^/]+/[^/]+")


class SubscriptionType(StrEnum):
    """How the sidecars of a group share a topic."""

    #: one sidecar has all of it; a second one is refused
    EXCLUSIVE = "exclusive"
    #: one sidecar has a lane, the others stand by
    FAILOVER = "failover"
    #: every sidecar has a part of every lane
    SHARED = "shared"
    #: like shared, and all records of a key go to the same sidecar
    KEY_SHARED = "key_shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarOptions(BrokerOptions):
    """Apache Pulsar. See docs/brokers/pulsar.md."""

    url: str = setting(
        "The broker or proxy: pulsar://host:6650, or pulsar+ssl://host:6651.", example="pulsar://pulsar:6650"
    )
    admin_url: str = setting(
        "The admin API. Empty: the same host at port 8080, or 8443 with TLS. Needed to create topics, for patterns and "
        "for ranges; without it consuming works, and the status shows no lag.",
        "",
    )
    namespace: str = setting("The namespace of topics that are named without one.", "public/default")
    subscription_type: SubscriptionType = setting(
        "How the sidecars of a group share a topic: `exclusive`, `failover`, `shared` or `key_shared`.",
        SubscriptionType.SHARED,
    )
    token: str = setting(
        "The token to authenticate with. Better set by an environment variable, or by `token_file`.", "", secret=True
    )
    token_file: str = setting("A file that holds the token. Read again at each connect.", "")
    tls_ca: str = setting("A file with the certificates to trust. Empty: those that come with the library.", "")
    tls_certificate: str = setting("A file with the client certificate, where the broker asks for one.", "")
    tls_key: str = setting("A file with the private key of `tls_certificate`.", "")
    tls_check_hostname: bool = setting("Require that the broker's certificate is for the host in `url`.", True)
    receiver_queue: int = setting(
        "The most records of a lane that the Pulsar library prefetches, besides `memory`.",
        500,
        at_least=1,
        at_most=100_000,
    )
    unacked_limit: int = setting(
        "The broker's `maxUnackedMessagesPerConsumer`, 0 if it has none. A larger window would never fill.",
        50_000,
        at_least=0,
    )
    discover_every: Seconds = setting(
        "How often to look for new partitions, and for new topics of a pattern.", Seconds(30.0), at_least=0.1
    )
    timeout: Seconds = setting("How long to wait for the broker to answer.", Seconds(10.0), at_least=1.0, at_most=300.0)

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ConfigError(problem)

    @property
    def traits(self) -> Traits:
        kind = self.subscription_type
        exclusive = kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
        return Traits(
            keeps_acks_beyond=True,
            keeps_reach=False,
            # Lanes move, but the library does not announce it, so nothing could be done in time.
            rebalances=False,
            lanes_are_exclusive=exclusive,
            seeks=exclusive,
            reads_ranges=True,
            creates_topics=True,
            matches_patterns=True,
            acks_are_final=True,
            positions_count_records=False,
            # Pulsar delays nothing for consumers of the other types.
            delays=not exclusive,
            tells_first_deliveries=kind is SubscriptionType.EXCLUSIVE,
        )

    def problems_with(self, subscription: "SubscriptionSettings") -> Iterator[tuple[str, str]]:
        kind = self.subscription_type.value
        if subscription.order is Order.LANE and kind in ("shared", "key_shared"):
            yield (
                "order",
                f'"lane" cannot be kept with subscription_type {kind}: several sidecars have records of a lane at the '
                "same time. Take failover or exclusive, or order key with key_shared",
            )
        if subscription.order is Order.KEY and kind == "shared":
            yield (
                "order",
                '"key" cannot be kept with subscription_type shared: records of a key go to different sidecars. Take '
                "key_shared",
            )
        if self.unacked_limit and subscription.window.records + self.receiver_queue > self.unacked_limit:
            yield (
                "window.records",
                f"{subscription.window.records} and a receiver_queue of {self.receiver_queue} are more than the broker "
                f"lets one consumer have unacked (unacked_limit: {self.unacked_limit}). It takes at most "
                f"{self.unacked_limit - self.receiver_queue}",
            )
        for topic in subscription.topics:
            if is_pattern(topic):
                try:
                    parse_pattern(topic, self.namespace)
                except (re.error, ValueError) as error:
                    yield "topics", f'"{topic}" is not a pattern of topics: {error}'

    def read_token(self) -> str:
        """The token to authenticate with, empty if there is none. Reads `token_file`; raises `OSError`."""
        return Path(self.token_file).read_text().strip() if self.token_file else self.token

    def tls_context(self) -> ssl.SSLContext:
        """For connections of our own, as the library makes its own. Raises `OSError`."""
        context = ssl.create_default_context(cafile=self.tls_ca or None)
        context.check_hostname = self.tls_check_hostname
        if self.tls_certificate:
            context.load_cert_chain(self.tls_certificate, self.tls_key)
        return context

    def _problems(self) -> Iterator[str]:
        """What is wrong with the options together, a sentence each."""
        if not _URL.fullmatch(self.url):
            yield f'url: "{self.url}" is not like pulsar://host:6650 or pulsar+ssl://host:6651'
        if self.admin_url and not _ADMIN_URL.fullmatch(self.admin_url):
            yield f'admin_url: "{self.admin_url}" is not like http://host:8080'
        if not _NAMESPACE.fullmatch(self.namespace):
            yield f'namespace: "{self.namespace}" is not like tenant/namespace'
        if self.token and self.token_file:
            yield "token_file: there is a token, too; one of them is enough"
        if bool(self.tls_certificate) is not bool(self.tls_key):
            yield "tls_key: a certificate and its key go together"
        if self.tls_ca and not self.url.startswith("pulsar+ssl"):
            yield "tls_ca: the url is not pulsar+ssl://, so there is no certificate to check"
