"""A few minutes of what a subscription did, so that a page that was just opened has something to show. Pure."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sidecar.observability.counters import SETTLE_SECONDS_BOUNDS, Counters, Meters

#: seconds between two samples, and how many are kept: five minutes
EVERY = 2.0
KEPT = 150


@dataclass(frozen=True, slots=True)
class Sample:
    """Counts since the start, and what was in hand, at one moment."""

    at: float
    fetched: int
    delivered: int
    acked: int
    failed: int
    in_flight: int
    #: batches settled, by how long it took: as `Histogram.counts`
    settled: tuple[int, ...]


def take(now: float, counters: Counters, meters: Meters, in_flight: int) -> Sample:
    failed = counters.nacked + counters.rejected + counters.expired + counters.abandoned
    settled = tuple(meters.settle_seconds.counts)
    return Sample(now, counters.fetched, counters.delivered, counters.acked, failed, in_flight, settled)


class History:
    """The latest samples of one subscription, oldest first. Its size is fixed."""

    def __init__(self) -> None:
        # One more than is shown: a rate lies between two samples.
        self._samples: deque[Sample] = deque(maxlen=KEPT + 1)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    @property
    def seconds(self) -> float:
        """How far back it goes."""
        return self._samples[-1].at - self._samples[0].at if self._samples else 0.0

    def rates(self, of: str) -> list[float]:
        """Records a second between samples, of `fetched`, `delivered`, `acked` or `failed`."""
        return [
            (getattr(after, of) - getattr(before, of)) / max(after.at - before.at, 1e-3)
            for before, after in pairwise(self._samples)
        ]

    def in_flight(self) -> list[float]:
        return [float(sample.in_flight) for sample in self._samples][1:]

    def settle_times(self, share: float) -> list[float]:
        """Seconds within which this share of the batches was settled that were settled between two samples.

        0 where none was.
        """
        return [
            quantile(SETTLE_SECONDS_BOUNDS, _less(after.settled, before.settled), share)
            for before, after in pairwise(self._samples)
        ]


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """By linear interpolation within the bound it falls into; the last bound for what lies beyond it; 0 of nothing."""
    wanted = share * sum(counts)
    if not wanted:
        return 0.0
    below, so_far = 0.0, 0
    for bound, count in zip(bounds, counts, strict=False):
        if count and so_far + count >= wanted:
            return below + (bound - below) * (wanted - so_far) / count
        below, so_far = bound, so_far + count
    return below


def _less(after: Sequence[int], before: Sequence[int]) -> list[int]:
    return [now - then for now, then in zip(after, before, strict=True)]
