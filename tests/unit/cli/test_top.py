"""`offramp top`: what it draws, and how it treats a terminal."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offramp.v1 import admin_pb2 as admin
from sidecar.cli.frame import View, draw, summary
from sidecar.model.text import Ink, age, bar, fit, short
from tests.unit.cli.fake_sidecar import FakeSidecar, serve

PLAIN = View(80, 24, Ink(enabled=False))


@pytest.fixture
def sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSidecar]:
    with serve(tmp_path) as fake:
        monkeypatch.setenv("OFFRAMP_ADDRESS", fake.address)
        yield fake


def status(
    uptime_ms: int = 1000, lanes: int = 4, delivered: int = 0, boot: bytes = b"b", **more: object
) -> admin.Status:
    rows = [
        admin.LaneStatus(topic="orders", lane=n, lag=1000 * n, in_flight_records=n, ready_records=5)
        for n in range(lanes)
    ]
    orders = admin.SubscriptionStatus(
        name="orders", broker="local", topics=["orders"], order="none", state=admin.SUBSCRIPTION_STATE_RUNNING,
        lanes=rows, sessions=[admin.SessionStatus()] * 2, buffered_bytes=32, buffered_bytes_limit=64,
        in_flight_records=12_345, would_be_replayed=99, oldest_unsettled_ms=61_000,
        counters=admin.Counters(delivered=delivered, acked=delivered, dead_lettered=3), **more,
    )  # type: ignore[arg-type]  # fmt: skip
    return admin.Status(version="1.0", boot=boot, uptime_ms=uptime_ms, subscriptions=[orders])


def test_rates_come_from_counters_and_the_sidecars_own_clock() -> None:
    text = "\n".join(draw(status(3000, delivered=30_000), status(1000, delivered=10_000), PLAIN))
    assert re.search(r"delivered +10\.0k/s  acked +10\.0k/s", text)
    assert re.search(r"dead-lettered +0/s \(3\)", text)


def test_a_subscription_that_is_read_by_ranges_shows_its_reader() -> None:
    reader = admin.ReaderStatus(name="sessions", age_ms=61_000)
    now, before = (
        status(uptime, delivered=delivered, mode="ranges", reader=reader)
        for uptime, delivered in ((3000, 30_000), (1000, 10_000))
    )
    text = "\n".join(draw(now, before, PLAIN))
    assert "by ranges" in text
    assert re.search(r"read +10\.0k/s", text)
    assert "reader: sessions, attached" in text
    assert "would be replayed" not in text
    assert list(summary(now, before)) == ["orders running read=10.0k/s lag=6000 commits=0 reader=sessions"]


def test_a_restart_in_between_shows_no_rates_instead_of_wrong_ones() -> None:
    text = "\n".join(draw(status(3000, delivered=5), status(9000, delivered=900, boot=b"a"), PLAIN))
    assert re.search(r"delivered +0/s", text)


def test_a_frame_tells_what_an_operator_wants_to_know() -> None:
    lines = draw(status(trouble=["a dead letter is held"], concurrency_limit=8), None, PLAIN)
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
    text = "\n".join(draw(now, None, PLAIN))
    assert all(said in text for said in ("the window is full", "paused", "parked records"))


def test_what_does_not_fit_can_be_scrolled_to() -> None:
    now = status(lanes=50)
    top, bottom = draw(now, None, PLAIN), draw(now, None, PLAIN, scroll=10**6)
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
    now.subscriptions[0].mode = "ranges" if ranged else "leases"
    for lane in now.subscriptions[0].lanes:
        lane.topic, lane.lag, lane.held_by = name, number - 1, name
    lines = draw(now, status(0), View(width, height, Ink(enabled=False)), scroll)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert all("\n" not in line for line in lines)


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0"), (999, "999"), (1000, "1.0k"), (12_345, "12.3k"), (999_999, "1.0M"), (4.5e9, "4.5G")]
)
def test_numbers_are_short(number: float, said: str) -> None:
    assert short(number) == said


@given(st.floats(0, 1e11))
def test_short_numbers_are_never_longer_than_five(number: float) -> None:
    assert len(short(number)) <= 5


@pytest.mark.parametrize(
    ("ms", "said"), [(0, "0.0s"), (42_000, "42s"), (192_000, "3m12s"), (7_500_000, "2h05m"), (356_400_000, "4d03h")]
)
def test_ages_are_short(ms: int, said: str) -> None:
    assert age(ms) == said


def test_a_bar_is_as_wide_as_it_was_told() -> None:
    assert [bar(share, 4) for share in (0, 1e-9, 0.5, 1, 7)] == ["    ", "▏   ", "██  ", "████", "████"]


def test_text_that_does_not_fit_is_cut_and_stays_on_its_line() -> None:
    assert fit("a\nbcdef", 4) == "a b…"
    assert fit("abc", 0) == ""


def test_without_a_terminal_it_prints_a_line_for_each_subscription() -> None:
    (line,) = summary(status(2000, delivered=500), status(1000))
    assert line.startswith("orders running delivered=500/s acked=500/s retried=0/s")
    assert "in_flight=12345" in line
    assert "lag=6000 workers=2 would_be_replayed=99" in line


def test_lines_go_to_a_pipe_until_its_reader_leaves(sidecar: FakeSidecar) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "sidecar", "top"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        sidecar.admin.watched.put(status())
        assert b"orders running" in process.stdout.readline()
        process.stdout.close()
        while process.poll() is None:
            sidecar.admin.watched.put(status())
            time.sleep(0.01)
        assert (process.returncode, process.stderr.read()) == (0, b"")


class Terminal:
    """The far side of a pseudo terminal: what was drawn so far."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.drawn = ""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 30
        while text not in self.drawn:
            assert time.monotonic() < deadline, f"{text!r} was never drawn: {self.drawn!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                self.drawn += os.read(self.fd, 65536).decode()


@contextmanager
def on_a_terminal(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    outer, inner = pty.openpty()
    command = [sys.executable, "-m", "sidecar", "top", *arguments]
    environ = {**os.environ, "COLUMNS": "80", "LINES": "24", "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(
        command, stdin=inner, stdout=inner, stderr=inner, env=environ, start_new_session=True
    ) as process:
        os.close(inner)
        try:
            yield process, Terminal(outer)
        finally:
            process.kill()
            os.close(outer)


@pytest.mark.parametrize("how", ["key", "signal"])
def test_the_terminal_is_left_as_it_was_found(sidecar: FakeSidecar, how: str) -> None:
    with on_a_terminal() as (process, terminal):
        terminal.wait_for("\x1b[?1049h")
        sidecar.admin.watched.put(status())
        terminal.wait_for("orders/3")
        if how == "key":
            os.write(terminal.fd, b"q")
        else:
            process.terminate()
        terminal.wait_for("\x1b[?1049l")
        assert process.wait(30) == 0


def test_it_outlives_a_restart_of_the_sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(tmp_path) as first:
        monkeypatch.setenv("OFFRAMP_ADDRESS", first.address)
        first.admin.watched.put(status())
        manager = on_a_terminal()
        process, terminal = manager.__enter__()
        terminal.wait_for("orders/3")
    terminal.wait_for("! ")
    with serve(tmp_path) as second:
        second.admin.watched.put(status(lanes=9, boot=b"c"))
        terminal.wait_for("orders/8")
        os.write(terminal.fd, b"q")
        assert process.wait(30) == 0
    manager.__exit__(None, None, None)


def test_a_subscription_that_is_not_there_ends_it_with_a_sentence(sidecar: FakeSidecar) -> None:
    import grpc

    sidecar.admin.error = (grpc.StatusCode.NOT_FOUND, 'there is no subscription "x"; there are: orders')
    with on_a_terminal("x") as (process, terminal):
        terminal.wait_for('offramp: there is no subscription "x"; there are: orders')
        assert process.wait(30) == 1
