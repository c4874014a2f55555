"""What becomes of records that failed. Pure: backoff, splitting, and telling an outage from poison."""

import random
from collections.abc import Sequence

from sidecar.model import Order
from sidecar.ordering import joined
from sidecar.settings import OutageSettings, RetrySettings
from sidecar.spans import Span, count, cut
from sidecar.wire import key_of


class Backoff:
    """Growing waits with jitter, so that what failed together does not come back together."""

    def __init__(self, first: float, factor: float, longest: float, jitter: float, rng: random.Random) -> None:
        self._first = first
        self._factor = factor
        self._longest = longest
        self._jitter = jitter
        self._random = rng

    @classmethod
    def of(cls, settings: RetrySettings, rng: random.Random) -> "Backoff":
        return cls(settings.first, settings.factor, settings.max, settings.jitter, rng)

    def wait(self, failures: int) -> float:
        """Seconds to wait after so many failures. Never more than the longest, however many there were."""
        try:
            full = min(self._longest, self._first * self._factor ** max(0, failures - 1))
        except OverflowError:
            full = self._longest if self._first else 0.0
        return full * (1.0 - self._jitter * self._random.random())


class OutageGuard:
    """Tells an outage of the handler from poison among the records.

    A batch that fails while others succeed has bad records in it; when every batch fails, the handler is down. It is
    down once `failures` different batches failed with no success in between, or as soon as one fails and nothing has
    succeeded lately. Any success ends that.
    """

    def __init__(self, settings: OutageSettings) -> None:
        self._settings = settings
        self._last_success: float | None = None
        #: batches that failed since the last success, by origin
        self._failing: set[int] = set()
        self.down = False

    def success(self, now: float) -> bool:
        """A batch succeeded. Answers whether this ended an outage."""
        recovered, self.down = self.down, False
        self._last_success = now
        if self._failing:
            self._failing = set()
        return recovered

    def failure(self, origin: int, now: float) -> bool:
        """A batch failed. Answers whether an outage began with it."""
        if not self._settings.enabled or self.down:
            return False
        self._failing.add(origin)
        self.down = len(self._failing) >= self._settings.failures or not self._lately(now)
        return self.down

    def may_split(self, now: float) -> bool:
        """Whether a failing batch is worth looking into: the handler works for others."""
        return not self._settings.enabled or (not self.down and self._lately(now))

    def may_give_up(self, first_failed: float | None) -> bool:
        """Whether a record that failed for the first time then may be given up: others succeeded since."""
        if not self._settings.enabled:
            return True
        if self.down or self._last_success is None or first_failed is None:
            return False
        return self._last_success >= first_failed

    def _lately(self, now: float) -> bool:
        return self._last_success is not None and now - self._last_success <= self._settings.lately


class RejectWatch:
    """The share of rejected records among the last ones settled.

    A handler that rejects nearly everything is more likely wrong than the records are.
    """

    def __init__(self, settings: OutageSettings) -> None:
        self._limit = settings.reject_share
        self._sample = settings.reject_sample
        self._settled = 0.0
        self._rejected = 0.0

    def settled(self, records: int, *, rejected: bool) -> None:
        self._settled += records
        if rejected:
            self._rejected += records
        if self._settled > 2 * self._sample:
            # Old ones fade: halving both keeps the share and lets newer records weigh more.
            self._settled /= 2
            self._rejected /= 2

    def alarming(self) -> bool:
        return self._limit < 1.0 and self._settled >= self._sample and self._rejected > self._limit * self._settled

    def reset(self) -> None:
        self._settled = self._rejected = 0.0


def halves(spans: Sequence[Span], order: Order) -> tuple[list[Span], list[Span]]:
    """Two halves of a failing batch, each of which can go without the other where the order lets it.

    With order `key` the records of a key stay together, so that one half never waits for the other; only when all
    have the same key are they cut in the middle. Uneven as that may be, it costs one round of splitting more at the
    most.
    """
    middle = (count(spans) + 1) // 2
    if order is not Order.KEY:
        return cut(spans, middle)
    groups: dict[object, list[Span]] = {}
    for span in spans:
        for single in span.singles():
            key = key_of(single.chunk.frames[single.start])
            name = object() if key is None else (single.lane, key)
            groups.setdefault(name, []).append(single)
    if len(groups) == 1:
        return cut(spans, middle)
    first: list[Span] = []
    second: list[Span] = []
    for group in sorted(groups.values(), key=len, reverse=True):
        smaller = first if len(first) <= len(second) else second
        smaller.extend(group)
    return in_order(first), in_order(second)


def in_order(spans: Sequence[Span]) -> list[Span]:
    """By lane and position, as a batch has them."""
    lanes: dict[int, int] = {}
    for span in spans:
        lanes.setdefault(id(span.lane), len(lanes))
    return joined(sorted(spans, key=lambda span: (lanes[id(span.lane)], span.chunk.positions[span.start])))
