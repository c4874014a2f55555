"""Kustomize and the kubelet, from the modules that Go's proxy has, built once and kept in the cache.

Kustomize takes a minute; the kubelet takes ten minutes of two cores, so only `make test-kubernetes` asks for it. Any
number of processes may ask at once.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.servers.maven import cache, locked
from tests.servers.tools import Missing

KUSTOMIZE = "5.7.1"
KUBERNETES = "1.34.4"


def kustomize() -> Path:
    """The program. Raises `Missing` if it must be built and cannot be."""
    return _built(f"kustomize-{KUSTOMIZE}", "kustomize (once, about a minute)", _build_kustomize) / "kustomize"


def kubelet() -> Path:
    """The program. Raises `Missing`."""
    what = f"the kubelet of Kubernetes {KUBERNETES} (once, some ten minutes of two cores)"
    return _built(f"kubelet-{KUBERNETES}", what, _build_kubelet) / "kubelet"


def _build_kustomize(folder: Path) -> None:
    module = f"sigs.k8s.io/kustomize/kustomize/v5@v{KUSTOMIZE}"
    _go("install", "-trimpath", "-ldflags=-s -w", module, cwd=folder, GOBIN=str(folder))


def _build_kubelet(folder: Path) -> None:
    """Builds inside a module of our own: the one of Kubernetes replaces its parts by folders that no proxy has."""
    with tempfile.TemporaryDirectory(prefix="module-", dir=folder.parent) as made:
        module = Path(made)
        told = json.loads(_go("mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}", cwd=module))
        upstream = Path(told["Dir"])
        staged = re.findall(r"(?m)^\s*(k8s\.io/\S+) => \./staging", (upstream / "go.mod").read_text())
        parts = "".join(f"\t{name} => {name} v0{KUBERNETES.removeprefix('1')}\n" for name in staged)
        (module / "go.mod").write_text(
            f"module offramp.test/kubernetes\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v{KUBERNETES}\n\n"
            f"replace (\n{parts})\n"
        )
        (module / "go.sum").write_bytes((upstream / "go.sum").read_bytes())
        version = "k8s.io/component-base/version"
        says = f"-s -w -X {version}.gitVersion=v{KUBERNETES} -X {version}.gitMajor=1 -X {version}.gitMinor=34"
        package = "k8s.io/kubernetes/cmd/kubelet"
        # Names what is built, so that `tidy` finds all that it needs.
        (module / "tools.go").write_text(f'//go:build tools\n\npackage tools\n\nimport _ "{package}"\n')
        _go("mod", "tidy", cwd=module)
        _go("build", "-trimpath", f"-ldflags={says}", "-o", f"{folder}/", package, cwd=module)


def _built(name: str, what: str, build: Callable[[Path], None]) -> Path:
    folder = cache() / name
    with locked(folder.with_name(f"{name}.lock")):
        if not folder.exists():
            if shutil.which("go") is None:
                raise Missing("go is not installed; this needs Go 1.24 or newer (https://go.dev/dl)")
            print(f"building {what} ...", file=sys.stderr, flush=True)
            made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder.parent))
            try:
                build(made)
                made.rename(folder)
            finally:
                shutil.rmtree(made, ignore_errors=True)
    return folder


def _go(*arguments: str, cwd: Path, **environ: str) -> str:
    """What `go` prints. Raises `Missing` with what it says if it fails: most often, that there is no network."""
    done = subprocess.run(
        ["nice", "go", *arguments],
        cwd=cwd,
        env={**os.environ, "CGO_ENABLED": "0", **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Missing(f"go {' '.join(arguments)} failed:\n{done.stderr.strip()[-2000:]}")
    return done.stdout
