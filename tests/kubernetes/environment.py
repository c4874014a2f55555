"""The PHP example and the Job of deploy/kubernetes on a node, with what they need: configuration, data, a journal."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.image.archive import ROOT
from tests.kubernetes import manifests, pods
from tests.kubernetes.journal import Journal
from tests.kubernetes.node import Node

_CONFIG = """
log: {{format: json}}
brokers:
  local: {{directory: /var/lib/offramp}}
subscriptions:
  {name}:
    topics: [{name}]
    batch: {{records: 5}}
"""

#: what the Job does: as much as it says it has published, then it ends
_JOB = """
import offramp
with offramp.Publisher(broker="local") as publisher:
    publisher.publish_many("payments", [offramp.Message(b"%d" % number) for number in range(50)])
left = set(range(50))
with offramp.connect("payments") as consumer:
    while left:
        batch = consumer.take(timeout=60)
        left -= {int(record.value) for record in batch}
        batch.ack()
print("all payments are reconciled", flush=True)
"""

JOB = "docker.io/example/reconcile-python:1"


class Environment:
    def __init__(self, node: Node, folder: Path) -> None:
        self.node = node
        self._folder = folder
        self.journal = Journal(self._made("journal"))
        self._pods = 0

    def start_php(self) -> None:
        """The PHP example. Data and journal outlive it."""
        pod = pods.with_folders(self._pod("php"), {"offramp-config": self._config("orders")})
        pod = pods.with_mount(pod, "offramp", self._made("data"), "/var/lib/offramp")
        self.node.run(pods.with_mount(pod, "orders", self._made("journal"), "/journal"))

    def start_php_on_an_empty_dir(self) -> None:
        """The same, but the data of the embedded broker is where it goes with the pod."""
        pod = pods.with_folders(self._pod("php"), {"offramp-config": self._config("orders")})
        pod["metadata"]["name"] = "forgetful"
        pod["spec"]["volumes"].append({"name": "data", "emptyDir": {}})
        mounts = pods.container_of(pod, "offramp")["volumeMounts"]
        mounts.append({"name": "data", "mountPath": "/var/lib/offramp"})
        self.node.run(pod)

    def start_job(self) -> None:
        pod = pods.with_folders(self._pod("job"), {"offramp-config": self._config("payments")})
        pods.container_of(pod, "reconcile")["command"] = ["python", "-c", _JOB]
        self.node.run(pods.with_mount(pod, "offramp", self._made("job-data"), "/var/lib/offramp"))

    def publish(self, values: list[str]) -> None:
        """Through the socket that the containers share; it is on this machine as well."""
        volume = self.node.volume(self.node.status("orders")["uid"], "offramp-socket")
        command = [sys.executable, "-m", "sidecar", "publish", "--topic", "orders"]
        # The path of the folder is longer than that of a socket may be.
        environ = {**os.environ, "OFFRAMP_ADDRESS": "unix:/proc/self/cwd/offramp.sock", "PYTHONPATH": str(ROOT)}
        lines = "".join(f"{value}\n" for value in values).encode()
        done = subprocess.run(
            command, input=lines, cwd=volume, env=environ, timeout=60, check=False, capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()

    def container(self, pod: str, name: str) -> dict[str, Any]:
        """What the kubelet says of a container, or nothing."""
        status = self.node.status(pod)
        every = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        return next((container for container in every if container["name"] == name), {})

    def process(self, pod: str, name: str) -> int | None:
        """The first process of a container, if it runs."""
        told = self.container(pod, name).get("containerID", "")
        return self.node.process(told.removeprefix("containerd://")) if told else None

    def _pod(self, example: str) -> dict[str, Any]:
        pod = pods.pod_of(manifests.read(example))
        # A kubelet without a cluster takes two pods of one content for the same.
        self._pods += 1
        pod["metadata"]["annotations"] = {"offramp.test/number": str(self._pods)}
        # A cluster says so itself.
        environ = pods.container_of(pod, "offramp")["env"]
        environ.append({"name": "KUBERNETES_SERVICE_HOST", "value": "10.88.0.1"})
        return pod

    def _config(self, name: str) -> Path:
        folder = self._made(f"config-{name}")
        (folder / "offramp.yaml").write_text(_CONFIG.format(name=name))
        return folder

    def _made(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        # The users of the containers are not known on this machine.
        folder.chmod(0o777)
        return folder


def inner_process(first: int, number: int) -> int:
    """This machine's number of a process that a container counts as `number`; `first` is any of that container's."""
    space = os.readlink(f"/proc/{first}/ns/pid")
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(path / "ns/pid") == space and _inner(path) == number:
                return int(path.name)
        except OSError:
            continue
    raise LookupError(f"no process {number} beside {first}")


def _inner(path: Path) -> int:
    line = next(line for line in (path / "status").read_text().splitlines() if line.startswith("NSpid:"))
    return int(line.split()[-1])
