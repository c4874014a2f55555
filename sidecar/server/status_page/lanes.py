"""The lanes of a subscription, with honest lag: what is left to do, and what the commit waits for."""

from collections.abc import Sequence
from heapq import nlargest

from sidecar.observability.status import LaneStatus, SubscriptionStatus
from sidecar.server.status_page.markup import Child, Html, joined, table, tag
from sidecar.server.status_page.words import count, lasting, plural

#: lanes that are shown: the worst, if there are more
SHOWN = 20
#: seconds; a record that is unsettled for less is no news
_NEWS = 10.0
#: seconds that records are on their way anyhow
_MOMENT = 1.0
_HEADINGS = (
    ("Lane", False),
    ("To do", True),
    ("Ready", True),
    ("In flight", True),
    ("For a retry", True),
    ("Oldest unsettled", False),
    ("Replayed if killed", True),
    ("Blocked", False),
)


def section(status: SubscriptionStatus) -> Html:
    # The retry topic comes last, whatever its name.
    lanes = [lane for lane in status.lanes if not lane.parked]
    lanes += [lane for lane in status.lanes if lane.parked and _has_something(lane)]
    if not lanes:
        return tag("div", tag("h3", "Lanes"), tag("p", "No lane is assigned to this sidecar.", class_="none"))
    shown = worst(lanes)
    empty = len(status.lanes) - len(lanes)
    rest = [
        f"The worst {len(shown)} of {len(lanes):,} lanes." if len(shown) < len(lanes) else "",
        f"{plural(empty, 'lane')} of the retry topic {'is' if empty == 1 else 'are'} empty." if empty else "",
    ]
    words = " ".join(filter(None, rest))
    return tag(
        "div",
        tag("h3", "Lanes"),
        _table(shown),
        tag("p", words, class_="more") if words else None,
        class_="lanes",
    )


def worst(lanes: Sequence[LaneStatus]) -> Sequence[LaneStatus]:
    """In their own order if there is room for all, so that no row jumps about; otherwise the worst, worst first."""
    return lanes if len(lanes) <= SHOWN else nlargest(SHOWN, lanes, key=_badness)


def _badness(lane: LaneStatus) -> tuple[bool, float, int]:
    return bool(lane.held_by), lane.oldest if lane.oldest > _NEWS else 0.0, lane.lag


def _has_something(lane: LaneStatus) -> bool:
    return bool(lane.lag > 0 or lane.ready_records or lane.in_flight_records or lane.waiting_records or lane.held_by)


def _table(lanes: Sequence[LaneStatus]) -> Html:
    return table("What is left to do in each lane, and what holds it up", _HEADINGS, map(_row, lanes))


def _row(lane: LaneStatus) -> list[Child]:
    name: Child = f"{lane.topic}/{lane.lane}"
    if lane.parked:
        name = joined((name, tag("small", " parked")))
    return [
        name,
        count(lane.lag),
        count(lane.ready_records),
        count(lane.in_flight_records),
        count(lane.waiting_records),
        _oldest(lane),
        count(lane.would_be_replayed),
        _blocked(lane),
    ]


def _oldest(lane: LaneStatus) -> Child:
    if lane.oldest_position < 0:
        return tag("span", "–", class_="none")
    whom = f" with {lane.oldest_with}" if lane.oldest_with else ""
    return joined((lasting(lane.oldest), tag("small", f" at {lane.oldest_position}{whom}")))


def _blocked(lane: LaneStatus) -> Child:
    said = []
    if lane.settled_beyond and lane.oldest_position >= 0 and lane.oldest > _MOMENT:
        done = plural(lane.settled_beyond, "record")
        said.append(f"commit behind {lane.oldest_position} since {lasting(lane.oldest)}, {done} done beyond it")
    if lane.held_by:
        said.append(f"not fetched: {lane.held_by}")
    elif lane.paused:
        said.append("not fetched")
    return tag("span", "; ".join(said), class_="blocked") if said else tag("span", "–", class_="none")
