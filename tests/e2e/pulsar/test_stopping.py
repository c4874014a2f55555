"""SIGTERM while Pulsar keeps its connections and does not respond: the sidecar still exits."""

import random
import signal
import time
from pathlib import Path

import pytest

from tests.brokers.harness import new_topic
from tests.e2e.harness import eventually
from tests.e2e.load.kinds import Kind
from tests.e2e.pulsar.fleet import Fleet
from tests.e2e.pulsar.load import Load
from tests.servers.pulsar import PulsarServer

LANES = 4
#: seconds: the deadline of the drain, and how long closing may take after it; a call of the admin API may take 10
DEADLINE, GOODBYES = 2, 40.0
SHARES = {Kind.OK: 0.9, Kind.FLAKY: 0.05, Kind.LATER: 0.04, Kind.BAD: 0.01}


@pytest.mark.xdist_group("own-pulsar")
@pytest.mark.parametrize("noticed", [False, True])
def test_a_frozen_broker_does_not_hold_up_the_end_of_a_sidecar(
    own_pulsar: PulsarServer, tmp_path: Path, noticed: bool
) -> None:
    topic = new_topic(own_pulsar, LANES)
    with Fleet(tmp_path, own_pulsar, topic, LANES, "shared", drain=f"{DEADLINE}s") as fleet:
        with Load(own_pulsar, topic, random.Random(1), SHARES, by_key=False) as load:
            sidecar = fleet.add()
            # Records were parked and dead-lettered, so that there are consumers, readers and producers to be closed.
            eventually(lambda: sidecar.status().counters.dead_lettered, "there are dead letters")
            fleet.works(sidecar)
            load.stop()
        own_pulsar.freeze()
        try:
            if noticed:
                eventually(lambda: sidecar.status().trouble, "the status says that the broker is away", 60.0)
            began = time.monotonic()
            sidecar.signal(signal.SIGTERM)
            assert sidecar.wait(120.0) == 0
            took = time.monotonic() - began
        finally:
            own_pulsar.thaw()
    assert took < DEADLINE + GOODBYES
