"""Faults under load, the same for every broker: a fleet and its load go through them, and everything is checked."""

import os
import random
import time

from tests.e2e.harness import eventually
from tests.e2e.load.fleet import Fleet, S
from tests.e2e.load.kinds import Kind
from tests.e2e.load.steady import SteadyLoad
from tests.servers.server import Server

#: with an order of keys, what waits is waited for
IN_ORDER = {Kind.OK: 0.93, Kind.FLAKY: 0.05, Kind.SLOW: 0.01, Kind.BAD: 0.01}
ANY_ORDER = {Kind.OK: 0.92, Kind.FLAKY: 0.04, Kind.SLOW: 0.01, Kind.LATER: 0.02, Kind.BAD: 0.01}


def chance() -> random.Random:
    """What a test that fails shows the seed of. The moments of other processes are not ours, so the seed repeats the
    plan, not the history."""
    seed = int(os.environ.get("OFFRAMP_TEST_SEED") or random.randrange(1 << 32))
    print(f"OFFRAMP_TEST_SEED={seed}")
    return random.Random(seed)


def kill_one_sidecar_and_add_one(fleet: Fleet[S], load: SteadyLoad, chance: random.Random) -> S:
    for _ in range(3):
        fleet.works(fleet.add())
    victim = fleet.sidecars[chance.randrange(3)]
    time.sleep(chance.uniform(0.0, 0.5))
    victim.kill()
    fleet.check()
    fleet.works(fleet.add())
    fleet.check()
    snapshot = finish(fleet, load)
    # The load was not trivial.
    assert len(snapshot.records) > 500
    assert {spot.lane for spot in snapshot.records} == set(range(fleet.lanes))
    return snapshot


def kill_the_broker(fleet: Fleet[S], load: SteadyLoad, chance: random.Random, server: Server, sidecars: int) -> S:
    for _ in range(sidecars):
        fleet.works(fleet.add())
    time.sleep(chance.uniform(0.0, 0.5))
    server.kill()
    for sidecar in fleet.sidecars:
        eventually(lambda: sidecar.status().trouble, "the status says that the broker is away")  # noqa: B023
    server.start()
    fleet.check()
    for sidecar in fleet.sidecars:
        fleet.works(sidecar)
        eventually(lambda: not sidecar.status().trouble, "the trouble is over")  # noqa: B023
    snapshot = finish(fleet, load)
    assert len(snapshot.records) > 500
    assert snapshot.dead
    return snapshot


def finish(fleet: Fleet[S], load: SteadyLoad) -> S:
    """Ends the load, and checks that nothing of it is lost."""
    load.stop()
    snapshot = fleet.finish()
    assert load.confirmed.keys() <= snapshot.records.keys()
    return snapshot
