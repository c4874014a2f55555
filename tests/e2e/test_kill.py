"""kill -9 of the sidecar and of workers at random moments of a load, again and again: nothing is lost."""

import os
import time
from pathlib import Path

from tests.e2e.harness import eventually
from tests.e2e.load import faults
from tests.e2e.load.embedded_audit import EmbeddedAudit
from tests.e2e.load.kinds import DEADLY, Kind
from tests.e2e.load.processes import Publisher, Workers, sidecar_for

LONG = bool(os.environ.get("OFFRAMP_TEST_LONG"))
ROUNDS = 100 if LONG else 5
LOAD = {Kind.OK: 0.9, Kind.FLAKY: 0.05, Kind.SLOW: 0.02, Kind.LATER: 0.015, Kind.BAD: 0.01, Kind.POISON: 0.005}


def test_killing_the_sidecar_and_workers_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    chance = faults.chance()
    sidecar = sidecar_for(tmp_path)
    audit = EmbeddedAudit(tmp_path / "data")
    with (
        sidecar,
        Workers(sidecar, "threads", "stream", "fetch", "fetch") as workers,
        Publisher(sidecar, chance, LOAD) as load,
    ):
        for number in range(ROUNDS):
            if number % 20 == 1:
                # At least one of each, whatever the load brings.
                load.publish(*LOAD, Kind.KILLER)
            before = len(load.confirmed)
            eventually(lambda before=before: len(load.confirmed) > before + 50, "the load goes on")
            time.sleep(chance.uniform(0.0, 1.0))
            if chance.random() < 0.5:
                workers.kill_one(chance)
            sidecar.kill()
            workers.replace_killed()
            audit.check(workers)
            if chance.random() < 0.2:
                # And again, while it starts.
                sidecar.launch()
                time.sleep(chance.uniform(0.0, 1.0))
                sidecar.kill()
            sidecar.start()
        snapshot = audit.finish(workers, load)
    print(
        f"{len(snapshot.records)} records: {len(audit.acked)} acked, {len(snapshot.dead)} dead-lettered, "
        f"{len(snapshot.parked)} parked on the way, {audit.repeats} delivered again after an ack"
    )
    # The load was not trivial.
    assert len(load.confirmed) > 50 * ROUNDS
    assert {reason.partition(":")[0] for reason in snapshot.dead.values()} == {*DEADLY.values()}
    assert snapshot.parked
