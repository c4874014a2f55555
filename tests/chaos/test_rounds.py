"""A short round on each broker, always the same; `make chaos` plays others. The long form plays some of those."""

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.chaos import clocks, plan
from tests.chaos.brokers import open_broker
from tests.chaos.campaign import Campaign, Wish
from tests.chaos.checker import history
from tests.chaos.checker.disturbances import DisturbanceKind
from tests.chaos.faults import Fault, FaultKind
from tests.chaos.plan import BrokerKind, Plan
from tests.chaos.round import play
from tests.e2e.load.kinds import Kind
from tests.servers.tools import Missing, give_up, in_ci

REPOSITORY = Path(__file__).parents[2]
LONG = bool(os.environ.get("OFFRAMP_TEST_LONG"))
#: what happens in the round of every broker
EVERYWHERE = (
    Fault(0.3, FaultKind.KILL_WORKER, 0, 0.0),
    Fault(0.6, FaultKind.KILL_SIDECAR, 0, 0.2),
    Fault(2.0, FaultKind.CUT_APP, 0, 0.0),
    Fault(2.5, FaultKind.STOP_SIDECAR, 0, 0.2),
)
#: and what only some of them can have done to them
MORE = {
    BrokerKind.LOCAL: (Fault(0.5, FaultKind.JUMP_CLOCK, 0, -86_400.0), Fault(1.5, FaultKind.FILL_DISK, 0, 1.0)),
    BrokerKind.KAFKA: (Fault(1.0, FaultKind.CUT_BROKER, 0, 0.0), Fault(2.8, FaultKind.FREEZE_LEAVING, 0, 0.5)),
    BrokerKind.PULSAR: (Fault(1.0, FaultKind.CUT_BROKER, 0, 0.0),),
    BrokerKind.REDIS: (Fault(1.0, FaultKind.CUT_BROKER, 0, 0.0),),
}
VARIANTS = {BrokerKind.LOCAL: "", BrokerKind.KAFKA: "consumer", BrokerKind.PULSAR: "key_shared", BrokerKind.REDIS: ""}


def fixed(broker: BrokerKind, without: Collection[FaultKind]) -> Plan:
    faults = sorted((*EVERYWHERE, *MORE[broker]))
    return Plan(
        seed=1,
        number=1,
        broker=broker,
        variant=VARIANTS[broker],
        order="none" if broker is BrokerKind.REDIS else "key",
        lanes=4,
        workers=(("threads", "fetch"),),
        tcp=True,
        shares={Kind.FLAKY: 40, Kind.SLOW: 10, Kind.BAD: 10},
        pace=200,
        faults=tuple(fault for fault in faults if fault.kind not in without),
        seconds=4.0,
    )


@pytest.mark.parametrize("kind", [*BrokerKind])
def test_a_short_round_keeps_every_promise(kind: BrokerKind, tmp_path: Path) -> None:
    # Relative, as `make chaos` has it, and deeper than the path of a socket may be.
    folder = Path(os.path.relpath(tmp_path)) / ("deep" * 20)
    try:
        broker = open_broker(kind, folder / "broker")
    except Missing as missing:
        give_up(missing)
    without = {*broker.cannot}
    if not clocks.library() and FaultKind.JUMP_CLOCK not in without:
        if in_ci():
            broker.close()
            give_up(clocks.MISSING)
        without.add(FaultKind.JUMP_CLOCK)
    try:
        verdict = play(fixed(kind, without), broker, folder / "round")
    finally:
        broker.close()
    assert verdict.passed, "\n".join([*verdict.lines(), f"see {folder / 'round'}"])
    # The round was not trivial, even on a busy machine.
    assert verdict.counts["records"] > 20
    if kind is BrokerKind.KAFKA:
        told = history.read(folder / "round")
        assert {whose for owner in told.snapshot.owners for whose in owner.whose} == {"sidecar 0", "sidecar 1"}
        assert [one for one in told.disturbances if one.kind is DisturbanceKind.SIDECAR_FROZEN]


def test_the_command_plays_a_round_in_a_relative_folder_too(tmp_path: Path) -> None:
    relative = os.path.relpath(tmp_path, REPOSITORY)
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--seed=1", "--round=2", "--broker=local", f"--folder={relative}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len([*tmp_path.glob("*/0002-local/verdict.json")]) == 1


@pytest.mark.skipif(not LONG, reason="the long form of the tests plays these; make chaos plays as many as you like")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("broker", [*BrokerKind])
def test_rounds_that_a_seed_has_planned(broker: BrokerKind, tmp_path: Path) -> None:
    assert Campaign(Wish(7, [broker], rounds=20, seconds=0.0, folder=tmp_path)).run() == 0


@pytest.mark.parametrize("broker", [*BrokerKind])
def test_a_seed_fixes_the_rounds(broker: BrokerKind) -> None:
    plans = [plan.make(5, number, broker) for number in range(50)]
    assert plans == [plan.make(5, number, broker) for number in range(50)]
    assert len({one.faults for one in plans}) == 50
    assert plans != [plan.make(6, number, broker) for number in range(50)]


def test_all_faults_happen_in_some_round() -> None:
    seen = {
        fault.kind for broker in BrokerKind for number in range(100) for fault in plan.make(1, number, broker).faults
    }
    assert seen == {*FaultKind}


def test_in_some_rounds_leases_end_because_workers_ask_for_it_and_in_some_because_the_sidecar_says_so() -> None:
    plans = [plan.make(1, number, broker) for broker in BrokerKind for number in range(50)]
    ends = [one for one in plans if one.leases.seconds]
    assert {one.leases.asked for one in ends} == {False, True}
    assert len(ends) < len(plans) / 2
    assert all((Kind.OVERDUE in one.shares) == bool(one.leases.seconds) for one in plans)


def test_a_fault_that_cannot_be_made_here_is_in_no_round() -> None:
    plans = [plan.make(1, number, BrokerKind.LOCAL, without=[FaultKind.FILL_DISK]) for number in range(100)]
    assert not [fault for one in plans for fault in one.faults if fault.kind is FaultKind.FILL_DISK]
