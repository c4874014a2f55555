"""What can be set for a broker of type `pulsar`."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sidecar.brokers.base import BrokerOptions, Traits
from sidecar.brokers.pulsar import checks
from sidecar.model.errors import ConfigError
from sidecar.settings import Seconds, setting

if TYPE_CHECKING:
    from sidecar.settings import SubscriptionSettings


class SubscriptionType(StrEnum):
    """How the sidecars of a group share a topic."""

    #: one sidecar has all of it; a second one is refused
    EXCLUSIVE = "exclusive"
    #: one sidecar has a lane, the others stand by
    FAILOVER = "failover"
    #: every sidecar has a part of every lane
    SHARED = "shared"
    #: likewise, and all records of a key go to the same one
    KEY_SHARED = "key_shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarOptions(BrokerOptions):
    """Apache Pulsar. See docs/brokers/pulsar.md."""

    url: str = setting(
        "The broker or proxy: pulsar://host:6650, or pulsar+ssl://host:6651.", example="pulsar://pulsar:6650"
    )
    admin_url: str = setting(
        "The admin API. Empty: the same host at port 8080, or 8443 with TLS. Needed to make topics, for patterns and "
        "for ranges; without it consuming works, and the status knows no lag.",
        "",
    )
    namespace: str = setting("The namespace of topics that are named without one.", "public/default")
    subscription_type: SubscriptionType = setting(
        "How the sidecars of a group share a topic: `exclusive`, `failover`, `shared` or `key_shared`.",
        SubscriptionType.SHARED,
    )
    token: str = setting("A token to authenticate with; better by a variable, or by `token_file`.", "", secret=True)
    token_file: str = setting("A file that holds the token. Read again at each connect.", "")
    tls_ca: str = setting("A file with the certificates to trust. Empty: those that come with the library.", "")
    tls_certificate: str = setting("A file with the certificate to show, where the broker asks for one.", "")
    tls_key: str = setting("A file with its private key.", "")
    tls_check_hostname: bool = setting("The certificate of the broker must be for the host in `url`.", True)
    receiver_queue: int = setting(
        "Most records of a lane that the Pulsar library holds before they are asked for, besides `memory`.",
        500,
        at_least=1,
        at_most=100_000,
    )
    unacked_limit: int = setting(
        "The broker's `maxUnackedMessagesPerConsumer`, 0 if it has none. A window that is larger would never fill.",
        50_000,
        at_least=0,
    )
    discover_every: Seconds = setting(
        "How often to look for new partitions, and for new topics of a pattern.", Seconds(30.0), at_least=0.1
    )
    timeout: Seconds = setting("Longest wait for an answer of the broker.", Seconds(10.0), at_least=1.0, at_most=300.0)

    def __post_init__(self) -> None:
        for problem in checks.problems(self):
            raise ConfigError(problem)

    @property
    def traits(self) -> Traits:
        kind = self.subscription_type
        exclusive = kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
        return Traits(
            keeps_acks_beyond=True,
            # Lanes move, but the library does not announce it, so that nothing could be done in time.
            rebalances=False,
            lanes_are_exclusive=exclusive,
            seeks=exclusive,
            reads_ranges=True,
            creates_topics=True,
            matches_patterns=True,
            acks_are_final=True,
            positions_count_records=False,
            tells_first_deliveries=kind is SubscriptionType.EXCLUSIVE,
        )

    def problems_with(self, subscription: "SubscriptionSettings") -> Iterator[tuple[str, str]]:
        return checks.problems_with(self, subscription)
