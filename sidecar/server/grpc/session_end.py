"""How a worker's session ends, whichever way its batches went to it."""

from collections.abc import Sequence

from sidecar.model.records import Outcome, SessionEnd, Settlement
from sidecar.observability.logs import Log
from sidecar.subscription.session import Session
from sidecar.subscription.subscription import Subscription

log = Log("service")


def release(subscription: Subscription, leases: Sequence[bytes]) -> None:
    """Give back batches that their worker has never seen: this does not count as an attempt."""
    if leases:
        subscription.settle([Settlement(lease, Outcome.RELEASE) for lease in leases])


def end(subscription: Subscription, session: Session, how: SessionEnd, *, unseen: Sequence[bytes]) -> None:
    """End a session. `unseen` are leases of batches that were not written: no worker's death is to blame for them."""
    session.stop_deliveries()
    release(subscription, unseen)
    if how is SessionEnd.LOST and session.unsettled:
        log.warning(
            "a worker is gone, and its batches go to others",
            subscription=subscription.settings.name,
            client=session.name,
            leases=session.unsettled,
        )
    session.end(how)
