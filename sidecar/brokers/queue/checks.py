"""What `offramp lint` says of a subscription to a broker with handles. Pure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sidecar.brokers.base import Traits
from sidecar.model.records import Order, Start

if TYPE_CHECKING:
    from sidecar.settings import SubscriptionSettings


def problems_with(subscription: "SubscriptionSettings", traits: Traits, hold: float = 0.0) -> Iterator[tuple[str, str]]:
    """For `BrokerOptions.problems_with`: a key of the subscription, and the reason.

    `hold`: seconds for which the broker lets a message be held, if the options say so; 0: not known."""
    if subscription.order is Order.LANE and not traits.lanes_are_exclusive:
        yield (
            "order",
            '"lane" cannot be kept: several sidecars have records of a queue at the same time. Take order none, or a '
            "broker whose lanes have one owner",
        )
    if subscription.order is Order.KEY and not (traits.lanes_are_exclusive or traits.keeps_keys_together):
        yield (
            "order",
            '"key" cannot be kept: records of a key go to different sidecars. Take order none, or a broker whose lanes '
            "have one owner",
        )
    if subscription.start is Start.LATEST and not traits.groups_are_independent:
        yield "start", '"latest" has no meaning: a queue delivers all that waits. Leave it out'
    if hold and subscription.lease.max > hold:
        yield (
            "lease.max",
            f"{subscription.lease.max:g} s is longer than the broker lets a message be held ({hold:g} s): it would "
            f"deliver the record again meanwhile. Take at most {hold:g} s",
        )
