"""Where a lane starts, by what Kafka has stored for it. Pure."""

from dataclasses import dataclass

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.kafka.metadata import Stamp, decode
from sidecar.brokers.kafka.options import OutOfRange
from sidecar.model import Run
from sidecar.runs import RunSet


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a lane begins."""

    #: where the group was
    start: int
    settled: tuple[Run, ...]
    first: bool
    end: LaneEnd
    #: where to go on: beyond `start` if something was removed since
    at: int
    #: records between the two that nobody will ever see
    lost: int = 0


def beginning(
    position: int, metadata: str | None, stamp: Stamp, end: LaneEnd, out_of_range: OutOfRange, *, first: bool
) -> Beginning:
    if position > end.end:
        # The log was cut, or is another one by now: what it has is news, wherever the group was in the old one.
        at = end.start if out_of_range is OutOfRange.EARLIEST else end.end
        return Beginning(at, (), first, end, at)
    settled = decode(metadata, stamp, position, end.end)
    if position < end.start:
        at = end.start if out_of_range is OutOfRange.EARLIEST else end.end
        return Beginning(position, settled, first, end, at, lost_between(position, at, settled))
    return Beginning(position, settled, first, end, position)


def lost_between(start: int, stop: int, settled: tuple[Run, ...] = ()) -> int:
    """Positions that were neither settled nor can be read."""
    return sum(run.stop - run.start for run in RunSet(settled).missing(Run(start, stop)))
