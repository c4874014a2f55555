"""Finds the subscription that a name or a lease belongs to."""

from collections.abc import Iterator, Mapping, Sequence

from sidecar.model.errors import InvalidRequest, Unknown, Unmet
from sidecar.model.records import Extended, Settlement, SettleResult, SettleStatus
from sidecar.ranges.subscription import RangeSubscription
from sidecar.server.auth.caller import current
from sidecar.settings import Right
from sidecar.subscription.subscription import Subscription

#: a subscription of either mode: what both can be asked
AnySubscription = Subscription | RangeSubscription

BOOT_BYTES = 8
_NUMBER_BYTES = 2
_PREFIX_BYTES = BOOT_BYTES + _NUMBER_BYTES
#: a lease is the sidecar's boot id, the number of its subscription, and a counter
_LEASE_BYTES = _PREFIX_BYTES + 6

_OTHER_LIFE = "this sidecar has not given out such a lease since it started"


def lease_prefix(boot: bytes, number: int) -> bytes:
    """What the leases of a sidecar's subscription begin with."""
    return boot + number.to_bytes(_NUMBER_BYTES)


class SubscriptionRegistry:
    """The subscriptions of this sidecar, by name and by the prefix of their leases."""

    def __init__(self, boot: bytes, subscriptions: Mapping[bytes, AnySubscription]) -> None:
        self.boot = boot
        self._by_prefix = {prefix: one for prefix, one in subscriptions.items() if isinstance(one, Subscription)}
        self._by_name = {subscription.settings.name: subscription for subscription in subscriptions.values()}

    def __iter__(self) -> Iterator[AnySubscription]:
        return iter(self._by_name.values())

    def leased(self, name: str, right: Right) -> Subscription:
        """Raises what `named` raises, and `Unmet` for one that is read by ranges."""
        subscription = self.named(name, right)
        if isinstance(subscription, Subscription):
            return subscription
        raise Unmet(
            f"subscription {name} has `mode: ranges`: read it by LogService (Plan, ReadRange), or set `mode: leases`"
        )

    def ranged(self, name: str) -> RangeSubscription:
        """Raises what `named` raises, and `Unmet` for one whose batches are leased."""
        subscription = self.named(name, Right.RANGES)
        if isinstance(subscription, RangeSubscription):
            return subscription
        raise Unmet(
            f"subscription {name} has `mode: leases`: consume it by ConsumerService (Consume, or Open and Fetch), or "
            "set `mode: ranges`"
        )

    def named(self, name: str, right: Right) -> AnySubscription:
        """The subscription of that name, for a caller who has this right.

        Raises `InvalidRequest` without a name, `Forbidden` without the right, and `Unknown`, which lists what there is,
        for a wrong name.
        """
        if name:
            current().require(right, name)
        subscription = self._by_name.get(name)
        if subscription is not None:
            return subscription
        known = ", ".join(sorted(one for one in self._by_name if current().may(right, one))) or "none"
        if not name:
            raise InvalidRequest(f"subscription must be given; there are: {known}")
        raise Unknown(f'there is no subscription "{name}"; there are: {known}')

    def settle(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        """The results stand in the order of the settlements, whichever subscriptions they belong to.

        Raises `InvalidRequest` and `Forbidden` before anything is applied.
        """
        owners = [self._owner(settlement.lease) for settlement in settlements]
        distinct = dict.fromkeys(owners)
        for owner in distinct:
            _check_right(owner)
        if len(distinct) == 1:
            return _settle(owners[0], settlements)
        groups = {
            owner: [settlement for settlement, its in zip(settlements, owners, strict=True) if its is owner]
            for owner in distinct
        }
        # A subscription checks its own before it applies them, but by then another may have applied its share.
        for owner, group in groups.items():
            if owner is not None:
                owner.check(group)
        results = {owner: iter(_settle(owner, group)) for owner, group in groups.items()}
        return [next(results[owner]) for owner in owners]

    def extend(self, lease: bytes, lease_for: float) -> Extended:
        owner = self._owner(lease)
        _check_right(owner)
        return Extended(lease, SettleStatus.UNKNOWN) if owner is None else owner.extend(lease, lease_for)

    def _owner(self, lease: bytes) -> Subscription | None:
        return self._by_prefix.get(lease[:_PREFIX_BYTES]) if len(lease) == _LEASE_BYTES else None


def _check_right(owner: Subscription | None) -> None:
    # The number in a lease can be guessed, so that showing one is no proof of anything.
    if owner is not None:
        current().require(Right.CONSUME, owner.settings.name)


def _settle(owner: Subscription | None, settlements: Sequence[Settlement]) -> list[SettleResult]:
    if owner is None:
        return [SettleResult(settlement.lease, SettleStatus.UNKNOWN, detail=_OTHER_LIFE) for settlement in settlements]
    return owner.settle(settlements)
