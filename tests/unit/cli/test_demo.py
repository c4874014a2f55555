"""What the demo publishes and draws."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from offramp.v1.admin_pb2 import SessionStatus
from sidecar.cli.demo import orders
from sidecar.cli.demo.display import Event, screen_lines, summary_line
from sidecar.cli.demo.orders import Kind
from sidecar.cli.demo.plan import Plan
from sidecar.cli.demo.publisher import SHARES, backlog, live
from sidecar.cli.demo.snapshot import LaneSnapshot, Snapshot
from sidecar.cli.terminal import Ink, View

PLAN = Plan()
SNAPSHOT = Snapshot(
    lanes=tuple(
        LaneSnapshot(
            number, published=24_000, done=3_000 if number == PLAN.slow_lane else 24_000 - number, in_flight=250
        )
        for number in range(PLAN.lanes)
    ),
    workers=tuple(SessionStatus(name=f"worker-{number}", leases=24, in_flight_records=6_000) for number in (1, 3, 4)),
    killed=("worker-2",),
    rate_in=8_000.0,
    rate_out=78_345.0,
    in_flight=18_000,
    redelivered=3_520,
    parked_now=60,
    parked=184,
    dead_lettered=17,
    trouble=("a trouble that is told in so many words that it fits no terminal of an ordinary width, not even this",),
)
EVENTS = [
    Event(number, f"Something happened for the {number}th time, and it takes a long line to say so." * 2)
    for number in range(30)
]


@pytest.mark.parametrize("kind", Kind)
def test_an_order_tells_its_kind_and_its_number(kind: Kind) -> None:
    text = orders.encode(4711, kind, 12.0)
    assert orders.kind_of(text) is kind
    assert orders.number_of(text) == 4711


@pytest.mark.parametrize("plan", [Plan(), Plan.quick(), Plan(records=1_000_000, workers=8)])
def test_every_order_is_published_by_exactly_one_publisher(plan: Plan) -> None:
    batches = [numbers for share in range(SHARES) for part in (backlog, live) for numbers in part(plan, share)]
    assert sorted(number for numbers in batches for number in numbers) == [*range(plan.records)]


@pytest.mark.parametrize("plan", [Plan(), Plan.quick()])
def test_the_special_orders_are_as_many_as_planned_and_none_is_in_the_slow_lane(plan: Plan) -> None:
    kinds = Counter(plan.kinds.values())
    assert kinds[Kind.TORN] == plan.torn
    assert kinds[Kind.REFUND] == plan.refunds
    assert kinds[Kind.PRE_ORDER] == plan.pre_orders
    assert kinds[Kind.FLAKY] == plan.records // 1_000
    assert all(number % plan.lanes != plan.slow_lane and number < plan.records for number in plan.kinds)


@pytest.mark.parametrize("ink", [Ink(enabled=False), Ink(enabled=True)])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (160, 50), (40, 12), (20, 5)])
def test_what_is_drawn_fits_the_terminal(width: int, height: int, ink: Ink) -> None:
    lines = screen_lines(PLAN, SNAPSHOT, EVENTS, 83.0, View(width, height, ink))
    plain = [re.sub(r"\x1b\[\d+m", "", line) for line in lines]
    assert len(plain) <= height
    assert max(map(len, plain)) <= width


def test_the_slow_lane_the_killed_worker_and_the_latest_event_are_shown() -> None:
    lines = screen_lines(PLAN, SNAPSHOT, EVENTS, 83.0, View(100, 30, Ink(enabled=False)))
    (slow,) = (line for line in lines if line.endswith("slow"))
    assert slow.startswith("lane 3")
    assert "21,000 behind" in slow
    assert any("worker-2   killed" in line for line in lines)
    assert lines[-1].startswith("0:29  Something happened")


def test_the_demo_can_be_drawn_before_the_first_record() -> None:
    assert screen_lines(PLAN, Snapshot(), [], 0.0, View(80, 24, Ink(enabled=False)))
    assert summary_line(PLAN, Snapshot()).startswith("0 of 320,000 done")


def test_the_demo_rests_only_when_nothing_is_on_its_way() -> None:
    rest = Snapshot(lanes=(LaneSnapshot(0, 5, 5, 0),))
    assert rest.at_rest
    assert not replace(rest, lanes=(LaneSnapshot(0, 5, 4, 0),)).at_rest
    assert not replace(rest, parked_now=1).at_rest
    assert not replace(rest, waiting=1).at_rest
    assert not replace(rest, in_flight=1).at_rest
