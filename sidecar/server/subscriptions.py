"""The subscriptions of this sidecar: what both modes offer, and which one a name or a lease belongs to."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from sidecar.brokers.base import SeekTarget
from sidecar.model.errors import InvalidRequest, Unknown, Unmet
from sidecar.model.reasons import Reason
from sidecar.model.records import Extended, ExtendStatus, Lane, Settlement, SettleResult, SettleStatus
from sidecar.observability.counters import Counters, Meters
from sidecar.observability.status import SubscriptionStatus
from sidecar.ranges.subscription import RangeSubscription
from sidecar.server.auth.caller import current
from sidecar.settings import Right, SubscriptionSettings
from sidecar.subscription.subscription import Subscription

BOOT_BYTES = 8
_NUMBER_BYTES = 2
_PREFIX_BYTES = BOOT_BYTES + _NUMBER_BYTES
#: a lease is the sidecar's boot id, the number of its subscription, and a counter
_LEASE_BYTES = _PREFIX_BYTES + 6

_UNKNOWN_LEASE = "this sidecar has granted no such lease since it started"


class AnySubscription(Protocol):
    """What a subscription offers in either mode, `leases` or `ranges`."""

    settings: SubscriptionSettings
    counters: Counters
    meters: Meters
    #: the bug that ended its loop; empty while it works. Only a new process helps.
    broken: str

    async def start(self) -> None:
        """Returns at once. Trouble with the broker shows in the status and is retried."""

    async def drain(self, deadline: float) -> None:
        """Stop in order, within this many seconds."""

    async def close(self) -> None:
        """Stop at once."""

    def status(self) -> SubscriptionStatus: ...

    def pause(self, reason: str) -> None: ...

    def resume(self) -> None: ...

    def lanes(self) -> list[Lane]:
        """The lanes that `seek` can move now."""

    @property
    def can_seek(self) -> bool: ...

    async def seek(self, targets: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        """Returns the position of each lane after the move."""


class SubscriptionRegistry:
    """The subscriptions of this sidecar, by name and by the prefix of their leases."""

    def __init__(
        self, boot: bytes, leased: Mapping[bytes, Subscription], ranged: Iterable[RangeSubscription] = ()
    ) -> None:
        """`leased` by the prefix of their leases: see `lease_prefix`."""
        self.boot = boot
        self._by_prefix = leased
        #: those of either mode, by name
        self.leased = {one.settings.name: one for one in leased.values()}
        self.ranged = {one.settings.name: one for one in ranged}
        self._by_name: dict[str, AnySubscription] = {**self.leased, **self.ranged}

    def __iter__(self) -> Iterator[AnySubscription]:
        return iter(self._by_name.values())

    def get(self, name: str, right: Right) -> AnySubscription:
        """The subscription of that name, for a caller who has this right.

        Raises `InvalidRequest` without a name, `Forbidden` without the right, and `Unknown`, which lists the names, for
        a wrong name.
        """
        if name:
            current().require(right, name)
        subscription = self._by_name.get(name)
        if subscription is not None:
            return subscription
        known = ", ".join(sorted(one for one in self._by_name if current().may(right, one))) or "none"
        if not name:
            raise InvalidRequest(f"subscription must be given; there are: {known}")
        raise Unknown(f'there is no subscription "{name}"; there are: {known}', Reason.SUBSCRIPTION_NOT_FOUND)

    def get_leased(self, name: str, right: Right) -> Subscription:
        """Raises what `get` raises, and `Unmet` for a subscription with mode ranges."""
        self.get(name, right)
        if name in self.leased:
            return self.leased[name]
        raise Unmet(
            f"subscription {name} has `mode: ranges`: read it by LogService (Plan, ReadRange), or set `mode: leases`",
            Reason.MODE,
            mode="ranges",
        )

    def get_ranged(self, name: str) -> RangeSubscription:
        """Raises what `get` raises, and `Unmet` for a subscription with mode leases."""
        self.get(name, Right.RANGES)
        if name in self.ranged:
            return self.ranged[name]
        raise Unmet(
            f"subscription {name} has `mode: leases`: consume it by ConsumerService (Consume, or Open and Fetch), or "
            "set `mode: ranges`",
            Reason.MODE,
            mode="leases",
        )

    def settle(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        """Returns results in the order of the settlements, whichever subscriptions they belong to.

        Raises `Forbidden` before anything is applied.
        """
        owners = [self._owner(settlement.lease) for settlement in settlements]
        distinct = dict.fromkeys(owners)
        for owner in distinct:
            _require_right(owner)
        if len(distinct) == 1:
            return _settle(owners[0], settlements)
        groups = {
            owner: [settlement for settlement, its in zip(settlements, owners, strict=True) if its is owner]
            for owner in distinct
        }
        results = {owner: iter(_settle(owner, group)) for owner, group in groups.items()}
        return [next(results[owner]) for owner in owners]

    def count_refused(self, lease: bytes) -> None:
        """A settlement of this lease was refused before it came here."""
        owner = self._owner(lease)
        if owner is not None:
            owner.counters.refused_settlements += 1

    def extend(self, lease: bytes, lease_for: float) -> Extended:
        """Raises `Forbidden`."""
        owner = self._owner(lease)
        _require_right(owner)
        return Extended(lease, ExtendStatus.UNKNOWN) if owner is None else owner.extend(lease, lease_for)

    def _owner(self, lease: bytes) -> Subscription | None:
        return self._by_prefix.get(lease[:_PREFIX_BYTES]) if len(lease) == _LEASE_BYTES else None


def lease_prefix(boot: bytes, number: int) -> bytes:
    """The first bytes of all leases of one subscription of a sidecar."""
    return boot + number.to_bytes(_NUMBER_BYTES)


def _require_right(owner: Subscription | None) -> None:
    # Leases can be guessed, so showing one proves nothing.
    if owner is not None:
        current().require(Right.CONSUME, owner.settings.name)


def _settle(owner: Subscription | None, settlements: Sequence[Settlement]) -> list[SettleResult]:
    if owner is None:
        return [
            SettleResult(settlement.lease, SettleStatus.UNKNOWN, detail=_UNKNOWN_LEASE) for settlement in settlements
        ]
    return owner.settle(settlements)
