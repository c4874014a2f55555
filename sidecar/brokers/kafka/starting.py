"""Where a lane starts or goes on, by what Kafka has stored for it. Pure."""

from dataclasses import dataclass

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.kafka.metadata import Stamp, decode
from sidecar.brokers.kafka.options import OutOfRange
from sidecar.model.records import Run
from sidecar.model.run_set import RunSet


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a lane begins, or begins again."""

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
    position: int, metadata: str, stamp: Stamp, end: LaneEnd, out_of_range: OutOfRange, *, first: bool
) -> Beginning:
    """Of a lane that was assigned, by the position and the metadata that Kafka has for the group."""
    at = _reachable(position, end, out_of_range)
    if position > end.end:
        # The log was cut, or is another one by now: what it has is news, wherever the group was in the old one.
        return Beginning(at, (), first, end, at)
    settled = decode(metadata, stamp, position, end.end)
    missing = RunSet(settled).missing(Run(position, at))
    return Beginning(position, settled, first, end, at, sum(run.stop - run.start for run in missing))


def going_on(position: int, end: LaneEnd, out_of_range: OutOfRange) -> Beginning:
    """Of a lane that was being read, when Kafka said that it has no such position."""
    at = _reachable(position, end, out_of_range)
    return Beginning(position, (), False, end, at, max(0, at - position))


def _reachable(position: int, end: LaneEnd, out_of_range: OutOfRange) -> int:
    if end.start <= position <= end.end:
        return position
    return end.start if out_of_range is OutOfRange.EARLIEST else end.end
