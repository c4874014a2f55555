"""How `offramp status` and `offramp top` show a status."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from offramp.v1 import admin_pb2 as admin
from sidecar.cli.status_text import screen_lines, summary_lines
from sidecar.cli.terminal import Ink, View, bar
from tests.unit.cli.statuses import status

PLAIN = View(80, 24, Ink(enabled=False))


def test_rates_come_from_counters_and_the_sidecars_own_clock() -> None:
    text = "\n".join(screen_lines(status(3000, delivered=30_000), status(1000, delivered=10_000), PLAIN))
    assert re.search(r"delivered +10\.0k/s  acked +10\.0k/s", text)
    assert re.search(r"dead-lettered +0/s \(3\)", text)


def test_a_subscription_that_is_read_by_ranges_shows_its_reader() -> None:
    reader = admin.ReaderStatus(name="sessions", age_ms=61_000)
    now, before = (
        status(uptime, delivered=delivered, mode="MODE_RANGES", reader=reader)
        for uptime, delivered in ((3000, 30_000), (1000, 10_000))
    )
    text = "\n".join(screen_lines(now, before, PLAIN))
    assert "by ranges" in text
    assert re.search(r"read +10\.0k/s", text)
    assert "reader: sessions, attached" in text
    assert "would be replayed" not in text
    assert list(summary_lines(now, before)) == ["orders running read=10.0k/s lag=6000 commits=0 reader=sessions"]


def test_a_restart_in_between_shows_no_rates_instead_of_wrong_ones() -> None:
    text = "\n".join(screen_lines(status(3000, delivered=5), status(9000, delivered=900, boot=b"a"), PLAIN))
    assert re.search(r"delivered +0/s", text)


def test_a_frame_tells_what_an_operator_wants_to_know() -> None:
    lines = screen_lines(status(trouble=["a dead letter is held"], concurrency_limit=8), None, PLAIN)
    text = "\n".join(lines)
    assert lines[0].startswith("offramp 1.0  up 1.0s  2 workers")
    assert lines[1] == "! orders: a dead letter is held"
    for said in (
        "in flight 12.3k",
        "oldest unsettled 1m01s",
        "would be replayed 99",
        "memory 50%",
        "in flight 8 batches",
    ):
        assert said in re.sub(" +", " ", text)
    assert re.search(r"orders/3 +3\.0k ████████████ +5 +3 +0", text)


def test_a_lane_says_what_holds_it() -> None:
    now = status()
    now.subscriptions[0].lanes[1].held_by = "the window is full"
    now.subscriptions[0].lanes[2].paused = True
    now.subscriptions[0].lanes[3].parked = True
    text = "\n".join(screen_lines(now, None, PLAIN))
    assert all(said in text for said in ("the window is full", "paused", "parked records"))


def test_what_does_not_fit_can_be_scrolled_to() -> None:
    now = status(lanes=50)
    top, bottom = screen_lines(now, None, PLAIN), screen_lines(now, None, PLAIN, scroll=10**6)
    assert len(top) == len(bottom) == 24
    assert top[0] == bottom[0]
    assert "more lines below" in top[-1]
    assert "orders/49" in bottom[-2]


@given(
    st.integers(25, 200),
    st.integers(5, 60),
    st.integers(0, 40),
    st.integers(0, 2**40),
    st.text(max_size=100),
    st.integers(0, 50),
    st.booleans(),
)
@example(52, 17, 6, 5_000, "long", 0, False)
@example(51, 17, 6, 5_000, "long", 0, True)
def test_no_frame_leaves_its_screen(
    width: int, height: int, lanes: int, number: int, name: str, scroll: int, ranged: bool
) -> None:
    now = status(lanes=lanes, delivered=number, trouble=[name])
    now.subscriptions[0].name = name
    now.subscriptions[0].mode = admin.MODE_RANGES if ranged else admin.MODE_LEASES
    for lane in now.subscriptions[0].lanes:
        lane.topic, lane.lag, lane.held_by = name, number - 1, name
    lines = screen_lines(now, status(0), View(width, height, Ink(enabled=False)), scroll)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert all("\n" not in line for line in lines)


def test_without_a_terminal_it_prints_a_line_for_each_subscription() -> None:
    (line,) = summary_lines(status(2000, delivered=500), status(1000))
    assert line.startswith("orders running delivered=500/s acked=500/s retried=0/s")
    assert "in_flight=12345" in line
    assert "lag=6000 workers=2 would_be_replayed=99" in line


def test_a_bar_is_as_wide_as_it_was_told() -> None:
    assert [bar(share, 4) for share in (0, 1e-9, 0.5, 1, 7)] == ["    ", "▏   ", "██  ", "████", "████"]
