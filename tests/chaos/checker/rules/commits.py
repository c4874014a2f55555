"""What the group was told to be done: nothing too early, and everything in the end."""

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.checker.history import RETRY, TOPIC, Commit, Owner, ParkedRecord
from tests.chaos.checker.history_index import HistoryIndex, before
from tests.chaos.checker.rules.dead_letters import may_be_given_up
from tests.e2e.load.journal import Spot


def settled_before_commit(index: HistoryIndex) -> Iterator[str]:
    """Nothing was committed that was not settled."""
    spots: dict[int, list[Spot]] = defaultdict(list)
    for spot in sorted(index.records):
        spots[spot.lane].append(spot)
    parked: dict[int, list[ParkedRecord]] = defaultdict(list)
    for parked_record in sorted(index.history.snapshot.parked):
        parked[parked_record.at.lane].append(parked_record)
    for commit in index.history.snapshot.commits:
        if commit.topic == TOPIC:
            for spot in spots[commit.lane]:
                if commit.covers(spot.position) and not _may_be_committed(index, spot, commit.at):
                    yield f"{index.timeline(spot)}; it was committed by {commit.at:.3f}"
        elif commit.topic == RETRY:
            yield from _parked_too_early(index, parked[commit.lane], commit)


def _may_be_committed(index: HistoryIndex, spot: Spot, by: float) -> bool:
    # One is parked because it came back, so somebody had it before.
    return _is_done(index, spot, by) or (bool(index.parked[spot]) and _times_taken(index, spot, by) > 0)


def _parked_too_early(index: HistoryIndex, parked: list[ParkedRecord], commit: Commit) -> Iterator[str]:
    over: dict[Spot, int] = defaultdict(int)
    for parked_record in parked:
        if commit.covers(parked_record.at.position):
            over[parked_record.origin] += 1
    for origin, count in over.items():
        # Each stay begins after a delivery, and ends by another; the last one as a record ends.
        early = _times_taken(index, origin, commit.at) < count + 1
        if early or (count == len(index.parked[origin]) and not _is_done(index, origin, commit.at)):
            yield f"{index.timeline(origin)}; its stay in the retry topic was committed by {commit.at:.3f}"


def _times_taken(index: HistoryIndex, spot: Spot, by: float) -> int:
    """At the most: a worker that died may have had it without having looked at it."""
    return sum(1 for _ in before(index.deliveries[spot], by)) + index.reasons.attempts_lost(by)


def _is_done(index: HistoryIndex, spot: Spot, by: float) -> bool:
    never = float("inf")
    if min(index.acked.get(spot, never), index.rejected.get(spot, never)) <= by:
        return True
    # When a dead letter was written is not known: it may be there from when there was a reason for it.
    return any(may_be_given_up(index, dead_letter, by) for dead_letter in index.dead_letters[spot])


def commits_never_go_back(index: HistoryIndex) -> Iterator[str]:
    """No commit goes back behind an earlier one."""
    # Pulsar may lose acks with a connection.
    if index.history.broker == "pulsar":
        return
    furthest: dict[tuple[str, int], Commit] = {}
    for commit in index.history.snapshot.commits:
        earlier = furthest.get((commit.topic, commit.lane))
        if earlier is not None and commit.position < earlier.position:
            yield (
                f"{commit.topic} {commit.lane}: {commit.position} was committed at {commit.at:.3f}, after "
                f"{earlier.position} at {earlier.at:.3f}"
            )
        else:
            furthest[commit.topic, commit.lane] = commit


def one_owner_at_a_time(index: HistoryIndex) -> Iterator[str]:
    """A lane is at one sidecar at a time, and acks count only there."""
    owners: dict[int, list[Owner]] = defaultdict(list)
    for owner in index.history.snapshot.owners:
        owners[owner.lane].append(owner)
        if len(owner.whose) > 1:
            yield f"lane {owner.lane} was at {' and '.join(owner.whose)} at {owner.at:.3f}"
    for spot, deliveries in index.all_deliveries():
        for one in deliveries:
            # One that was parked comes again where the lane of the retry topic is.
            if one.said is None or not one.settled or index.parked[spot]:
                continue
            sidecar, at = index.sidecars.get(one.writer, ""), one.said.at
            # The latest one by then.
            for owner in [owner for owner in owners[spot.lane] if owner.at <= at][-1:]:
                if owner.whose and sidecar not in owner.whose and not index.reasons.was_out_of_touch(owner.at, at):
                    yield (
                        f"an ack of {at:.3f} counted at {sidecar}, but the lane was at {owner.whose[0]} since "
                        f"{owner.at:.3f}: {index.timeline(spot)}"
                    )


def all_is_committed(index: HistoryIndex) -> Iterator[str]:
    """What the sidecars counted is committed in the end."""
    last = {(commit.topic, commit.lane): commit for commit in index.history.snapshot.commits}
    for spot in index.records:
        commit = last.get((TOPIC, spot.lane))
        if commit is None or not commit.covers(spot.position):
            yield f"{index.timeline(spot)}; the group would get it again"
    for parked_record in index.history.snapshot.parked:
        commit = last.get((RETRY, parked_record.at.lane))
        if commit is None or not commit.covers(parked_record.at.position):
            yield f"{index.timeline(parked_record.origin)}; the group would get it again from the retry topic"
