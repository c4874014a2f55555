"""Answering for records whose lane moved away. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from sidecar.lanes import LanePhase
from sidecar.lease import Holder, Lease, Settled
from sidecar.model import Range, Run, SettleResult, SettleStatus
from sidecar.runs import RunSet


def without_gone_lanes(
    lease: Lease[Holder], result: SettleResult, settled: Sequence[Settled]
) -> tuple[SettleResult, list[Settled]]:
    """What is left of a settlement, and its result with the ranges named that are stale.

    The lease remembers what was refused, so that saying it again gets the same answer.
    """
    stale = RunSet(Run(each.first, each.first + each.count) for each in result.stale)
    lease.refused = refused = lease.refused or RunSet()
    left: list[Settled] = []
    for each in settled:
        index = each.part.first
        for span in each.spans:
            if span.lane.phase is LanePhase.GONE:
                stale.add(Run(index, index + span.records))
                refused.add(Run(index, index + span.records))
            else:
                part = replace(each.part, first=index, count=span.records)
                left.append(Settled([span], part, each.named, each.meant))
            index += span.records
    ranges = tuple(Range(run.start, run.stop - run.start) for run in stale)
    return result._replace(status=SettleStatus.STALE, stale=ranges, detail="a lane moved to another sidecar"), left
