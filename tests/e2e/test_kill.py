"""kill -9 of the sidecar and of workers at random moments of a load, again and again: nothing is lost."""

import os
import random
import time
from pathlib import Path

from tests.e2e.harness import eventually
from tests.e2e.load.books import Books
from tests.e2e.load.crew import Crew, Publisher, settle_everything, sidecar_for
from tests.e2e.load.kinds import DEADLY, Kind

LONG = bool(os.environ.get("OFFRAMP_TEST_LONG"))
ROUNDS = 100 if LONG else 5
LOAD = {
    Kind.OK: 0.9,
    Kind.FLAKY: 0.05,
    Kind.SLOW: 0.02,
    Kind.LATER: 0.015,
    Kind.BAD: 0.01,
    Kind.POISON: 0.005,
}


def test_killing_the_sidecar_and_workers_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("OFFRAMP_TEST_SEED") or random.randrange(1 << 32))
    # Shown if the test fails. The moments of other processes are not ours, so it repeats the plan, not the history.
    print(f"OFFRAMP_TEST_SEED={seed}")
    chance = random.Random(seed)
    sidecar = sidecar_for(tmp_path)
    books = Books(tmp_path / "data")
    with (
        sidecar,
        Crew(sidecar, "threads", "stream", "fetch", "fetch") as crew,
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
                crew.kill_one(chance)
            sidecar.kill()
            crew.tend()
            books.read(crew.journals)
            assert not books.committed_too_early()
            if chance.random() < 0.2:
                # And again, while it starts.
                sidecar.launch()
                time.sleep(chance.uniform(0.0, 1.0))
                sidecar.kill()
            sidecar.start()
        load.stop()
        settle_everything(sidecar, crew, load)
        assert sidecar.terminate() == 0
        books.read(crew.journals)
    stock = books.stock
    print(
        f"{len(stock.values)} records: {len(books.acked)} acked, {len(stock.dead)} dead-lettered, "
        f"{len(stock.parked)} parked on the way, {books.repeats} delivered again after an ack"
    )
    assert not books.unaccounted()
    assert not books.missing(load.confirmed)
    assert not books.committed_too_early()
    assert not books.settled_and_not_committed()
    assert not books.surprises
    # It was a load worth the name.
    assert len(load.confirmed) > 50 * ROUNDS
    assert {reason.partition(":")[0] for reason in stock.dead.values()} == {*DEADLY.values()}
    assert stock.parked
