"""Pure: the pod that a Deployment or Job makes, for a kubelet without a cluster.

Such a kubelet knows no ConfigMaps, Secrets or claims. What they would hold is in folders of this machine, and nothing
else is changed.
"""

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.kubernetes import checks

Manifest = dict[str, Any]


def pod_of(manifests: Iterable[Manifest]) -> Manifest:
    """The pod of the one workload among them."""
    (workload,) = (manifest for manifest in manifests if checks.pod_of(manifest) is not None)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": workload["metadata"]["name"], "namespace": "default"},
        "spec": copy.deepcopy(workload["spec"]["template"]["spec"]),
    }


def with_folders(pod: Manifest, folders: Mapping[str, Path]) -> Manifest:
    """The pod with these volumes in folders of the machine; what a Secret would be that is optional is left empty."""
    pod = copy.deepcopy(pod)
    for volume in pod["spec"]["volumes"]:
        if volume["name"] in folders:
            name = volume["name"]
            volume.clear()
            volume.update(name=name, hostPath={"path": str(folders[name]), "type": "Directory"})
        elif volume.get("secret", {}).get("optional"):
            del volume["secret"]
            volume["emptyDir"] = {}
    return pod


def with_mount(pod: Manifest, container: str, folder: Path, place: str) -> Manifest:
    """The pod with one more folder of the machine in a container: what a claim would be."""
    pod = copy.deepcopy(pod)
    name = place.strip("/").replace("/", "-")
    pod["spec"]["volumes"].append({"name": name, "hostPath": {"path": str(folder), "type": "Directory"}})
    container_of(pod, container).setdefault("volumeMounts", []).append({"name": name, "mountPath": place})
    return pod


def container_of(pod: Manifest, name: str) -> Manifest:
    (found,) = (container for container in checks.containers_of(pod["spec"]) if container["name"] == name)
    assert isinstance(found, dict)
    return found
