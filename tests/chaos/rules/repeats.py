"""Records that come again: with a reason, and said to be such."""

from collections.abc import Iterator, Sequence

from tests.chaos.seen import Delivery, Seen
from tests.e2e.load.journal import Spot
from tests.e2e.load.kinds import Kind

#: they fail once, by the attempt that the delivery says it is
_FAIL_ONCE = frozenset((Kind.FLAKY, Kind.LATER))


def repeats_have_a_reason(seen: Seen) -> Iterator[str]:
    """A record comes again only where something made it."""
    for spot, deliveries in seen.all_deliveries():
        for number, again in enumerate(deliveries[1:], 1):
            last = deliveries[number - 1]
            if again.writer != last.writer and seen.reasons.had_since(again.writer, again.at) < last.at:
                # It was sent before the other: that one is the repeat.
                continue
            if not (last.came_back or _has_reason(seen, spot, last, again, _since(seen, spot, deliveries, last))):
                yield f"without a reason at {again.at:.3f}: {seen.story(spot)}"


def _since(seen: Seen, spot: Spot, deliveries: Sequence[Delivery], last: Delivery) -> float:
    """From when on a reason counts."""
    # A copy that waits in the retry topic comes when it is due, however long ago it was that made it one too many.
    return deliveries[0].at if seen.stays[spot] else last.at


def _has_reason(seen: Seen, spot: Spot, last: Delivery, again: Delivery, since: float) -> bool:
    if last.settled:
        # It counts, whatever becomes of the worker; but the lane may not have got that far.
        return seen.reasons.lane_began_again(since, again.at)
    if seen.stays[spot] and seen.reasons.in_doubt(again.at):
        return True
    return seen.reasons.session_lost(last.writer, since, again.at)


def repeats_are_flagged(seen: Seen) -> Iterator[str]:
    """A record that comes again after an ack, or after an unknown outcome, says so."""
    for spot, deliveries in seen.all_deliveries():
        for number, again in enumerate(deliveries):
            if again.entry.possibly_processed or seen.reasons.just_woke(again.at):
                continue
            # It says what was known when it was sent.
            sent = seen.reasons.had_since(again.writer, again.at)
            if seen.acked.get(spot, sent) < sent:
                yield f"acked before {again.at:.3f}: {seen.story(spot)}"
            elif any(one.is_open(sent) for one in deliveries[:number]):
                yield f"in somebody's hands before {again.at:.3f}: {seen.story(spot)}"


def flags_have_a_reason(seen: Seen) -> Iterator[str]:
    """A record that nobody can have had before does not say that somebody may have."""
    if seen.reasons.all_are_doubtful:
        return
    for spot, deliveries in seen.all_deliveries():
        for number, one in enumerate(deliveries):
            known = any(not earlier.came_back or earlier.entry.possibly_processed for earlier in deliveries[:number])
            if one.entry.possibly_processed and not (known or seen.stays[spot] or seen.reasons.in_doubt(one.at)):
                yield f"flagged at {one.at:.3f}: {seen.story(spot)}"


def attempts_are_counted(seen: Seen) -> Iterator[str]:
    """An attempt is counted once, and only if there was one."""
    for spot, deliveries in seen.all_deliveries():
        for number, one in enumerate(deliveries):
            most = 1 + number + seen.reasons.attempts_lost(one.at)
            if one.entry.attempt > most and not seen.reasons.broker_counts:
                yield f"attempt {one.entry.attempt}, of {most} at the most: {seen.story(spot)}"
            elif number and _is_forgotten(seen, spot, deliveries, deliveries[number - 1], one):
                yield f"attempt {one.entry.attempt} again at {one.at:.3f}: {seen.story(spot)}"


def _is_forgotten(seen: Seen, spot: Spot, deliveries: Sequence[Delivery], last: Delivery, one: Delivery) -> bool:
    """Whether a failure of this record alone does not count. One of several is a reason to split them."""
    if last.said is None or not last.came_back or len(last.said.entries) > 1 or seen.kind(spot) not in _FAIL_ONCE:
        return False
    since = _since(seen, spot, deliveries, last)
    return one.entry.attempt <= last.entry.attempt and not seen.reasons.session_lost(last.writer, since, one.at)
