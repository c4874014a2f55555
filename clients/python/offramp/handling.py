"""From how a handler ended to what becomes of its batch."""

import logging

from offramp.batches import Batch
from offramp.verdicts import ACK, RELEASE, SettleAs, Verdict, verdict_of

logger = logging.getLogger("offramp")


def conclude(batch: Batch, error: BaseException | None) -> None:
    """Settle what the handler has not settled itself: acked if it returned, as its exception says if it raised."""
    if error is None:
        batch.settle_rest(ACK)
        return
    if not isinstance(error, SettleAs):
        what = "" if not batch.settled else ", which it had settled already"
        logger.warning("the handler failed for %r%s", batch, what, exc_info=error)
    batch.settle_rest(verdict_of(error))


def verdict_on_exit(error: BaseException | None) -> Verdict | None:
    """What becomes of batches in hand when a consumer's `with` block ends.

    Left in order, it has not tried them. Left by an exception, it has failed with them: to call them untried would
    bring a poisoned record back for ever. Interrupted (Ctrl-C, a cancelled task), nobody can say: None.
    """
    if error is None:
        return RELEASE
    return verdict_of(error) if isinstance(error, Exception) else None


def check_workers(workers: int, prefetch: int | None) -> int:
    """The batches to ask for. Raises `ValueError`."""
    if workers < 1:
        raise ValueError(f"workers: {workers} is less than 1")
    if prefetch is None:
        return 2 * workers
    if prefetch < 0:
        raise ValueError(f"prefetch: {prefetch} is less than 0")
    return workers + prefetch
