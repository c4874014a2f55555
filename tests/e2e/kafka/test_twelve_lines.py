"""A configuration of twelve lines consumes a topic that somebody else's producer has filled."""

import json
import os
import subprocess
from pathlib import Path

from tests.brokers.harness import new_topic, numbered
from tests.e2e.harness import OFFRAMP, eventually, offramp
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
    topic = new_topic(kafka, 3)
    for lane in range(3):
        kafka.publish(topic, *numbered(100, f"{lane}-"), lane=lane)
    config = tmp_path / "offramp.yaml"
    config.write_text(CONFIG.format(folder=tmp_path, bootstrap=kafka.bootstrap, topic=topic))
    assert len(config.read_text().splitlines()) == 12
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OFFRAMP_")}
    sidecar = subprocess.Popen([*OFFRAMP, "run", "--config", str(config)], env=environment)
    try:
        eventually((tmp_path / "o.sock").exists, "the sidecar listens")
        consumed = offramp("consume", "orders", "--count", "300", "--address", f"unix:{tmp_path}/o.sock", check=True)
        got = {json.loads(line)["value"] for line in consumed.stdout.splitlines()}
        assert got == {value.decode() for lane in range(3) for value in numbered(100, f"{lane}-")}
        eventually(lambda: progress(kafka, "orders", topic, 3).is_done, "the group is at the end")
    finally:
        sidecar.terminate()
        assert sidecar.wait(30) == 0
