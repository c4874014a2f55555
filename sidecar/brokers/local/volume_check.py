"""Whether a data directory outlives the pod. A folder of a container is removed with it, and its messages as well."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

#: an environment variable that the kubelet sets in every container
_IN_A_POD = "KUBERNETES_SERVICE_HOST"
#: the mounts of this process
_MOUNTS = Path("/proc/self/mountinfo")
#: part of the path of emptyDir volumes: `.../pods/<uid>/volumes/kubernetes.io~empty-dir/<name>`
_EMPTY_DIR = "/kubernetes.io~empty-dir/"


class Mount(NamedTuple):
    root: str
    point: str
    kind: str


def problem(directory: str, environ: Mapping[str, str]) -> str | None:
    """What the directory is on, if that does not outlive the pod. Always None outside of Kubernetes."""
    if _IN_A_POD not in environ:
        return None
    try:
        mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return None
    return short_lived_volume(directory, mounts)


def short_lived_volume(directory: str, mounts: str) -> str | None:
    """The same for a given text of `mountinfo`."""
    mount = _mount_of(os.path.realpath(directory), mounts)
    if mount is None:
        return None
    if _EMPTY_DIR in mount.root:
        return "an emptyDir volume, which goes with the pod"
    if mount.kind in ("tmpfs", "ramfs"):
        return "a volume in memory, which goes with the pod"
    # No volume is ever mounted at the root, whatever file system the container runtime uses for it.
    if mount.kind == "overlay" or mount.point == "/":
        return "the container's own file system, which goes with the container"
    return None


def _mount_of(path: str, mounts: str) -> Mount | None:
    """The mount that a path is on: the deepest, and of several there the last, which covers the others."""
    best: Mount | None = None
    for mount in map(_parse, mounts.splitlines()):
        covers = mount is not None and (path + "/").startswith(mount.point.rstrip("/") + "/")
        if mount is not None and covers and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _parse(line: str) -> Mount | None:
    # id, parent, device, root, mount point, options, fields without a number, "-", type, source, options
    left, _, right = line.partition(" - ")
    fields, kind = left.split(" "), right.partition(" ")[0]
    return Mount(_unescape(fields[3]), _unescape(fields[4]), kind) if len(fields) > 4 and kind else None


def _unescape(text: str) -> str:
    """Spaces and other special characters are written in octal."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
