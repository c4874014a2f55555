"""One node without a cluster: containerd, and a kubelet that runs the pods of a folder.

Everything it makes is below one folder, except for a bridge that leads nowhere and for cgroups; `stop` removes both.
"""

import contextlib
import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kubernetes import images
from tests.servers.process import ServerProcess, await_, free_ports

NAME = "offramp-node"
_BRIDGE, _SUBNET = "offramp0", "10.87.0.0/24"
_CGROUPS = Path("/sys/fs/cgroup")

_CONTAINERD = """
version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # A machine that is a container itself may lower no process's score, and has no AppArmor.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""


class Node:
    def __init__(self, folder: Path, kubelet: Path) -> None:
        self._folder = folder
        self._program = kubelet
        self._port, self._read_only = free_ports(2)
        self._containerd: ServerProcess | None = None
        self._kubelet: ServerProcess | None = None

    def start(self) -> None:
        """Returns when both answer."""
        self._clear()
        self._make_network()
        for name in ("pods", "logs"):
            (self._folder / name).mkdir()
        config = self._folder / "containerd.toml"
        config.write_text(_CONTAINERD.format(folder=self._folder, pause=images.PAUSE))
        self._containerd = self._process("containerd", "--config", str(config))
        await_(lambda: self._answers("version"), "containerd answers")
        config = self._folder / "kubelet.json"
        config.write_text(json.dumps(self._kubelet_config()))
        self._kubelet = self._process(
            str(self._program),
            f"--config={config}",
            f"--root-dir={self._folder}/k",
            f"--cert-dir={self._folder}/certificates",
            f"--hostname-override={NAME}",
        )
        await_(lambda: self._kubelet_answers(), "the kubelet answers", 180)

    def stop(self) -> None:
        """Ends the pods that are left, then itself."""
        if self._kubelet is not None:
            for manifest in (self._folder / "pods").iterdir():
                manifest.unlink()
            with contextlib.suppress(TimeoutError):
                await_(lambda: not self._ctr("tasks", "list", "-q").split(), "all pods are gone")
            self._kubelet.stop()
        if self._containerd is not None:
            for name in self._ctr("tasks", "list", "-q").split():
                with contextlib.suppress(subprocess.CalledProcessError):
                    self._ctr("tasks", "delete", "--force", name)
            self._containerd.stop()
        self._clear()

    def load(self, archive: Path, *names: str) -> None:
        """Gives the node an image, also under further names."""
        self._ctr("images", "import", str(archive))
        for name in names:
            own = subprocess.run(["tar", "-xOf", archive, "manifest.json"], capture_output=True, check=True).stdout
            self._ctr("images", "tag", "--force", json.loads(own)[0]["RepoTags"][0], name)

    def run(self, pod: dict[str, Any]) -> None:
        """Starts a pod, as soon as the kubelet sees it."""
        name = f"{pod['metadata']['name']}.json"
        made = self._folder / name
        made.write_text(json.dumps(pod))
        # A manifest that is seen half written would be refused.
        made.rename(self._folder / "pods" / name)

    def remove(self, name: str) -> None:
        """Deletes a pod, as `kubectl delete` would: the kubelet ends it within its grace period."""
        (self._folder / "pods" / f"{name}.json").unlink()

    def status(self, name: str) -> dict[str, Any]:
        """The status of a pod with its `uid`, or nothing if there is none."""
        for pod in self._get("/pods")["items"] or ():
            if pod["metadata"]["name"] == f"{name}-{NAME}":
                return {**pod["status"], "uid": pod["metadata"]["uid"]}
        return {}

    def process(self, container: str) -> int | None:
        """The id of a container's first process as this machine counts, if it runs."""
        rows = [line.split() for line in self._ctr("tasks", "list").splitlines()[1:]]
        return next((int(row[1]) for row in rows if row[0] == container and row[2] == "RUNNING"), None)

    def log(self, name: str, container: str) -> list[str]:
        """What a container has said, over all its restarts."""
        files = sorted((self._folder / "logs").glob(f"default_{name}-{NAME}_*/{container}/*.log"))
        return [line.split(" ", 3)[3] for file in files for line in file.read_text().splitlines()]

    def volume(self, uid: str, name: str) -> Path:
        """Where an emptyDir of a pod is on this machine."""
        return self._folder / "k/pods" / uid / "volumes/kubernetes.io~empty-dir" / name

    def _ctr(self, *arguments: str) -> str:
        command = ["ctr", "--address", f"{self._folder}/containerd.sock", "-n", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def _answers(self, *arguments: str) -> bool:
        try:
            self._ctr(*arguments)
        except subprocess.CalledProcessError:
            return False
        return True

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._read_only}{path}", timeout=30) as response:
            return json.load(response)

    def _kubelet_answers(self) -> bool:
        assert self._kubelet is not None
        assert self._kubelet.is_running, (self._folder / "kubelet.log").read_text()[-3000:]
        try:
            self._get("/pods")
        except OSError:
            return False
        return True

    def _make_network(self) -> None:
        ipam = {"type": "host-local", "ranges": [[{"subnet": _SUBNET}]], "dataDir": f"{self._folder}/addresses"}
        bridge = {"type": "bridge", "bridge": _BRIDGE, "isGateway": True, "ipam": ipam}
        network = {"cniVersion": "0.4.0", "name": "offramp", "plugins": [bridge]}
        folder = self._folder / "cni"
        folder.mkdir()
        (folder / "offramp.conflist").write_text(json.dumps(network))

    def _kubelet_config(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": self._port,
            "readOnlyPort": self._read_only,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "staticPodPath": f"{self._folder}/pods",
            "fileCheckFrequency": "1s",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{self._folder}/containerd.sock",
            "podLogsDir": f"{self._folder}/logs",
            "volumePluginDir": f"{self._folder}/plugins",
            "makeIPTablesUtilChains": False,
            # The disk of a laptop may be nearly full; that is not what is tested.
            "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "0%"},
            "imageGCHighThresholdPercent": 100,
        }

    def _process(self, *command: str) -> ServerProcess:
        log = self._folder / f"{Path(command[0]).name}.log"
        return ServerProcess.start(command, log=log, folder=self._folder, owner=os.getpid())

    def _clear(self) -> None:
        """Removes what is left outside of the folder, by this node or by one that was killed."""
        for mount in _mounts_below(self._folder):
            subprocess.run(["umount", "--lazy", mount], check=False)
        for folder in _CGROUPS.glob("*/kubepods"):
            for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
                with contextlib.suppress(OSError):
                    path.rmdir()
            with contextlib.suppress(OSError):
                folder.rmdir()
        subprocess.run(["ip", "link", "delete", _BRIDGE], capture_output=True, check=False)
        shutil.rmtree(self._folder / "cni", ignore_errors=True)


def _mounts_below(folder: Path) -> Iterator[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    yield from (point for point in reversed(points) if point.startswith(f"{folder}/"))
