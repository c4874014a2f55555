"""Records that come again: with a reason, and said to be such."""

from collections.abc import Iterator, Sequence

from tests.chaos.checker.history_index import Delivery, HistoryIndex
from tests.e2e.load.journal import Spot
from tests.e2e.load.kinds import Kind

#: they fail once, by the attempt that the delivery says it is
_FAIL_ONCE = frozenset((Kind.FLAKY, Kind.LATER))


def repeats_have_a_reason(index: HistoryIndex) -> Iterator[str]:
    """A record comes again only where something made it."""
    for spot, deliveries in index.all_deliveries():
        for number, again in enumerate(deliveries[1:], 1):
            last = deliveries[number - 1]
            if again.writer != last.writer and index.reasons.had_since(again.writer, again.at) < last.at:
                # It was sent before the other: that one is the repeat.
                continue
            if not (last.came_back or _has_reason(index, spot, last, again, _since(index, spot, deliveries, last))):
                yield f"without a reason at {again.at:.3f}: {index.timeline(spot)}"


def _since(index: HistoryIndex, spot: Spot, deliveries: Sequence[Delivery], last: Delivery) -> float:
    """From when on a reason counts."""
    # A copy that waits in the retry topic comes when it is due, however long ago it was that made it one too many.
    return deliveries[0].at if index.parked[spot] else last.at


def _has_reason(index: HistoryIndex, spot: Spot, last: Delivery, again: Delivery, since: float) -> bool:
    if last.settled:
        # It counts, whatever becomes of the worker; but the lane may not have got that far.
        return index.reasons.lane_began_again(since, again.at)
    if index.parked[spot] and index.reasons.in_doubt(again.at):
        return True
    return index.reasons.session_lost(last.writer, since, again.at)


def repeats_are_flagged(index: HistoryIndex) -> Iterator[str]:
    """A record that comes again after an ack, or after an unknown outcome, says so."""
    for spot, deliveries in index.all_deliveries():
        for number, again in enumerate(deliveries):
            if again.entry.possibly_processed or index.reasons.just_woke(again.at):
                continue
            # It says what was known when it was sent.
            sent = index.reasons.had_since(again.writer, again.at)
            if index.acked.get(spot, sent) < sent:
                yield f"acked before {again.at:.3f}: {index.timeline(spot)}"
            elif any(one.is_open(sent) for one in deliveries[:number]):
                yield f"in somebody's hands before {again.at:.3f}: {index.timeline(spot)}"


def flags_have_a_reason(index: HistoryIndex) -> Iterator[str]:
    """A record that nobody can have had before does not say that somebody may have."""
    if index.reasons.all_possibly_processed:
        return
    for spot, deliveries in index.all_deliveries():
        for number, one in enumerate(deliveries):
            known = any(not earlier.came_back or earlier.entry.possibly_processed for earlier in deliveries[:number])
            if one.entry.possibly_processed and not (known or index.parked[spot] or index.reasons.in_doubt(one.at)):
                yield f"flagged at {one.at:.3f}: {index.timeline(spot)}"


def attempts_are_counted(index: HistoryIndex) -> Iterator[str]:
    """An attempt is counted once, and only if there was one."""
    for spot, deliveries in index.all_deliveries():
        for number, one in enumerate(deliveries):
            most = 1 + number + index.reasons.attempts_lost(one.at)
            if one.entry.attempt > most and not index.reasons.broker_counts:
                yield f"attempt {one.entry.attempt}, of {most} at the most: {index.timeline(spot)}"
            elif number and _is_forgotten(index, spot, deliveries, deliveries[number - 1], one):
                yield f"attempt {one.entry.attempt} again at {one.at:.3f}: {index.timeline(spot)}"


def _is_forgotten(
    index: HistoryIndex, spot: Spot, deliveries: Sequence[Delivery], last: Delivery, one: Delivery
) -> bool:
    """Whether a failure of this record alone does not count. One of several is a reason to split them."""
    if last.said is None or not last.came_back or len(last.said.entries) > 1 or index.kind(spot) not in _FAIL_ONCE:
        return False
    since = _since(index, spot, deliveries, last)
    return one.entry.attempt <= last.entry.attempt and not index.reasons.session_lost(last.writer, since, one.at)
