"""A configuration of twelve lines consumes a topic that somebody else's producer has filled."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.brokers.harness import numbered
from tests.brokers.kafka import name
from tests.e2e.harness import eventually
from tests.e2e.kafka.snapshot import progress
from tests.servers.kafka import KafkaServer

CONFIG = """\
listen:
  socket: {folder}/o.sock
http:
  address: ""
brokers:
  kafka:
    type: kafka
    servers: ["{bootstrap}"]
subscriptions:
  orders:
    broker: kafka
    topics: [{topic}]
"""


def test_twelve_lines_are_enough(kafka: KafkaServer, tmp_path: Path) -> None:
    topic = name("orders")
    kafka.make_topic(topic, 3)
    for lane in range(3):
        kafka.publish(topic, *numbered(100, f"{lane}-"), lane=lane)
    config = tmp_path / "offramp.yaml"
    config.write_text(CONFIG.format(folder=tmp_path, bootstrap=kafka.bootstrap, topic=topic))
    assert len(config.read_text().splitlines()) == 12
    offramp = [sys.executable, "-m", "sidecar"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OFFRAMP_")}
    sidecar = subprocess.Popen([*offramp, "run", "--config", str(config)], env=environment)
    try:
        eventually((tmp_path / "o.sock").exists, "the sidecar listens")
        consumed = subprocess.run(
            [*offramp, "consume", "orders", "--count", "300", "--address", f"unix:{tmp_path}/o.sock"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        got = {json.loads(line)["value"] for line in consumed.stdout.splitlines()}
        assert got == {value.decode() for lane in range(3) for value in numbered(100, f"{lane}-")}
        eventually(lambda: progress(kafka, "orders", topic, 3).is_done, "the group is at the end")
    finally:
        sidecar.terminate()
        assert sidecar.wait(30) == 0
