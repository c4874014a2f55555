"""SIGTERM in the middle of a load: what was settled is committed, and what was not comes again."""

import random
import signal
import time
from pathlib import Path

from sidecar.model.units import show_duration
from sidecar.settings import DrainSettings
from tests.e2e.harness import Sidecar, eventually
from tests.e2e.load.embedded_audit import EmbeddedAudit
from tests.e2e.load.kinds import Kind
from tests.e2e.load.processes import Publisher, Workers, sidecar_for

IGNORED = "ignored a signal: the configuration is read at the start only; restart to change it"
LOAD = {Kind.OK: 0.95, Kind.SLOW: 0.005, Kind.FLAKY: 0.025, Kind.BAD: 0.02}


def test_slow_workers_settle_while_the_sidecar_drains_and_nothing_is_done_twice(tmp_path: Path) -> None:
    sidecar, audit = sidecar_for(tmp_path, drain="20s"), EmbeddedAudit(tmp_path / "data")
    workers = Workers(sidecar, "threads", "fetch", slow=0.5)
    with sidecar, workers, Publisher(sidecar, random.Random(1), LOAD) as load:
        eventually(lambda: sidecar.status().counters.acked > 300, "it works")
        assert sidecar.terminate() == 0
        assert sidecar.event("drained")["seconds"] < 19.0
        audit.check(workers)
        assert not audit.not_committed()
        sidecar.start()
        audit.finish(workers, load)
    assert audit.repeats == 0


def test_a_hangup_is_ignored_and_a_drain_is_still_possible(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar:
        sidecar.signal(signal.SIGHUP)
        assert sidecar.event(IGNORED)["signal"] == "SIGHUP"
        assert sidecar.publish("orders", [b"1"])
        assert sidecar.terminate() == 0
        assert sidecar.event("drained")


def test_two_seconds_are_enough_to_lose_nothing_that_was_settled(tmp_path: Path) -> None:
    """One worker does not settle in time; all else is committed as it goes, so that there is little left to do."""
    sidecar, audit = sidecar_for(tmp_path, drain="2s"), EmbeddedAudit(tmp_path / "data")
    with sidecar, Publisher(sidecar, random.Random(2), LOAD) as load:
        with Workers(sidecar, "threads", "fetch", stuck=600.0) as workers:
            load.publish(Kind.STUCK)
            eventually(lambda: sidecar.status().counters.acked > 300, "it works")
            assert sidecar.terminate() == 0
            assert 1.9 < sidecar.event("drained")["seconds"] < 10.0
        _recover(audit, workers, load)


def test_a_pod_that_is_killed_while_one_worker_is_slow_loses_nothing_that_was_settled(tmp_path: Path) -> None:
    """The deadline is the default, which it does not come to: it is killed before, while a worker is still at it."""
    sidecar, audit = (
        sidecar_for(tmp_path, drain=show_duration(DrainSettings().deadline)),
        EmbeddedAudit(tmp_path / "data"),
    )
    with sidecar, Publisher(sidecar, random.Random(4), LOAD) as load:
        with Workers(sidecar, "threads", "fetch", stuck=600.0) as workers:
            load.publish(Kind.STUCK)
            eventually(lambda: sidecar.status().counters.acked > 300, "it works")
            sidecar.signal(signal.SIGTERM)
            sidecar.event("stopping")
            eventually(lambda: sidecar.status().leases == 1, "all but the slow one have settled")

            def counts() -> bool:
                audit.check(workers)
                return not audit.not_committed()

            eventually(counts, "what was settled is committed, and does not wait for the end")
            assert sidecar.process.poll() is None
            sidecar.kill()
        _recover(audit, workers, load)


def test_a_sidecar_that_is_killed_while_it_drains_loses_nothing(tmp_path: Path) -> None:
    sidecar, audit = sidecar_for(tmp_path, drain="20s"), EmbeddedAudit(tmp_path / "data")
    workers = Workers(sidecar, "threads", "fetch", stuck=1.0)
    with sidecar, workers, Publisher(sidecar, random.Random(3), LOAD) as load:
        eventually(lambda: sidecar.status().counters.acked > 200, "it works")
        load.publish(Kind.STUCK)
        sidecar.signal(signal.SIGTERM)
        sidecar.event("stopping")
        # A worker is at it for longer than this, so that the drain is not over.
        time.sleep(random.uniform(0.0, 0.3))
        sidecar.kill()
        audit.check(workers)
        sidecar.start()
        audit.finish(workers, load)


def _recover(audit: EmbeddedAudit, workers: Workers, load: Publisher) -> None:
    """Nothing that was settled is lost, and another workers does the rest."""
    audit.check(workers)
    assert not audit.not_committed()
    workers.sidecar.start()
    with Workers(workers.sidecar, "threads", "fetch", stuck=0.0) as relief:
        audit.finish(relief, load)
    assert not audit.broken
