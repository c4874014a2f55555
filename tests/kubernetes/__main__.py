"""`make test-kubernetes`: the examples in a real kubelet. `install` only builds kustomize, for `make test`."""

import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from tests.kubernetes import images, manifests, programs
from tests.kubernetes.environment import JOB, Environment
from tests.kubernetes.node import Node
from tests.kubernetes.scenario import Scenario
from tests.servers.tools import Missing, in_ci

#: Debian's names of what a node needs
_PACKAGES = {"containerd": "containerd", "runc": "runc", "mmdebstrap": "mmdebstrap", "ip": "iproute2"}
_PLUGINS = Path("/usr/lib/cni/bridge")


def install() -> int:
    """Builds what the tests of the manifests need, so that no test waits for it."""
    try:
        programs.kustomize()
    except Missing as missing:
        print(f"{missing}. Tests that need kustomize will be skipped, or fail if CI=true.", file=sys.stderr)
        return int(in_ci())
    return 0


def run() -> int:
    """Plays the scenario, and says how it ended."""
    try:
        _install_packages()
        kubelet, sidecar = programs.kubelet(), images.sidecar()
    except Missing as missing:
        print(f"{missing}", file=sys.stderr)
        return 1
    # Short, since the path of a volume is long; never in memory, which would be an ephemeral volume.
    folder = Path(tempfile.mkdtemp(prefix="okube-", dir="/var/tmp"))
    node = Node(folder, kubelet)
    try:
        print(f"a node of Kubernetes {programs.KUBERNETES}, with containerd", flush=True)
        node.start()
        node.load(images.pause(folder))
        node.load(images.php(folder, manifests.ROOT / "tests/kubernetes/handler.php"))
        node.load(sidecar, JOB)
        Scenario(Environment(node, folder)).play()
    except Exception as error:
        traceback.print_exception(error)
        print(f"FAILED; the logs of the pods and of the kubelet are in {_keep(folder)}", file=sys.stderr)
        return 1
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print("all of it holds")
    return 0


def _keep(folder: Path) -> Path:
    """Copies the logs to where they outlive the node."""
    kept = Path(tempfile.mkdtemp(prefix="offramp-kubernetes-"))
    shutil.copytree(folder / "logs", kept, dirs_exist_ok=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, kept)
    return kept


def _install_packages() -> None:
    if os.geteuid() != 0:
        raise Missing("a kubelet needs root")
    missing = [package for program, package in _PACKAGES.items() if shutil.which(program) is None]
    if not _PLUGINS.exists():
        missing.append("containernetworking-plugins")
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise Missing(f"a kubelet needs {', '.join(missing)}")
    print(f"installing {', '.join(missing)}", flush=True)
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-o", "DPkg::Lock::Timeout=600", "-qq"]
    for command in ([*apt, "update"], [*apt, "install", "-y", "--no-install-recommends", *missing]):
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"{' '.join(command)} failed: {done.stderr.strip()[-1000:]}")


if __name__ == "__main__":
    sys.exit(install() if sys.argv[1:] == ["install"] else run())
