"""What a handler is, and how its end settles its batch."""

import inspect
import logging
from collections.abc import Callable, Coroutine, Generator

from offramp.answers import Answer
from offramp.batch import Batch
from offramp.errors import Drained
from offramp.outcomes import ACK, RELEASE, Outcome, SettleAs, outcome_of

logger = logging.getLogger("offramp")


def is_coroutine_handler(handler: Callable[[Batch], object]) -> bool:
    """Whether calling it does nothing until awaited: a coroutine function, or an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def check_result(result: object) -> None:
    """Raises `TypeError` if a handler returned its work instead of doing it: an ack would lose the records."""
    if result is None:
        return
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        advice = "a handler must not yield"
    elif inspect.isawaitable(result) and not isinstance(result, Answer):
        advice = "make it an async def, await it there, and run it by offramp.aio.Worker"
    else:
        return
    if isinstance(result, Coroutine | Generator):
        result.close()
    raise TypeError(
        f"the handler returned an object of type {type(result).__name__}, and its work was not done: {advice}"
    )


def settle_by_result(batch: Batch, error: BaseException | None) -> None:
    """Settle what the handler has not settled itself: acked if it returned, by its exception if it raised."""
    if error is None:
        batch.settle_rest(ACK)
        return
    if not isinstance(error, SettleAs):
        what = "" if not batch.settled else ", which it had settled already"
        logger.warning("the handler failed for %r%s", batch, what, exc_info=error)
    batch.settle_rest(outcome_of(error))


def outcome_on_exit(error: BaseException | None) -> Outcome | None:
    """The outcome of batches in hand when a consumer's `with` block ends.

    Without an exception, or when no further batch comes, they were not tried. With one they have failed: called
    untried, a poisoned record would come back forever. Interrupted (Ctrl-C, a cancelled task), nobody knows: None.
    """
    if error is None or isinstance(error, Drained):
        return RELEASE
    return outcome_of(error) if isinstance(error, Exception) else None


def credit_for(workers: int, prefetch: int | None) -> int:
    """The number of batches to ask for. Raises `ValueError`."""
    if workers < 1:
        raise ValueError(f"workers: {workers} is less than 1")
    if prefetch is None:
        return 2 * workers
    if prefetch < 0:
        raise ValueError(f"prefetch: {prefetch} is less than 0")
    return workers + prefetch
