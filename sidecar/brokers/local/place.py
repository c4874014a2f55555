"""Where the data directory really is. In a pod, a folder may be gone with the container, and its messages with it."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

#: set by the kubelet in every container of a cluster
_IN_A_POD = "KUBERNETES_SERVICE_HOST"
#: what the kernel knows of this process's mounts
_MOUNTS = Path("/proc/self/mountinfo")
#: where the kubelet keeps emptyDir volumes: `.../pods/<uid>/volumes/kubernetes.io~empty-dir/<name>`
_EMPTY_DIR = "/kubernetes.io~empty-dir/"


class Mount(NamedTuple):
    root: str
    point: str
    kind: str


def problem(directory: str, environ: Mapping[str, str]) -> str | None:
    """Why a directory must not hold messages here, or None. Outside of Kubernetes any directory will do."""
    if _IN_A_POD not in environ:
        return None
    try:
        mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return None
    return lifetime(directory, mounts)


def lifetime(directory: str, mounts: str) -> str | None:
    """What the directory is on, if that does not outlive the pod. The mounts are the text of a `mountinfo`."""
    mount = _mount_of(os.path.realpath(directory), mounts)
    if mount is None:
        return None
    if _EMPTY_DIR in mount.root:
        return "an emptyDir volume, which goes with the pod"
    if mount.kind in ("tmpfs", "ramfs"):
        return "a volume in memory, which goes with the pod"
    # Whatever kind of file system the runtime has made it of: a volume is never mounted there.
    if mount.kind == "overlay" or mount.point == "/":
        return "the container's own file system, which goes with the container"
    return None


def _mount_of(path: str, mounts: str) -> Mount | None:
    """The mount that a path is on: of the deepest, the one that was mounted last and so covers the others."""
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
    return Mount(_plain(fields[3]), _plain(fields[4]), kind) if len(fields) > 4 and kind else None


def _plain(text: str) -> str:
    """Spaces and their like are written in octal."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
