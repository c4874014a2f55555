"""Images for the node, as archives that containerd imports: the sidecar's own, a PHP app, and the pod's pause.

The PHP app has two layers: PHP from Debian's packages, made once and kept in the cache, and the client with
a handler. No registry and no builder is needed for that.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.image.archive import ARCHIVE, ROOT
from tests.servers.maven import cache, locked
from tests.servers.tools import Missing

PAUSE = "registry.k8s.io/pause:3.10"
#: as the example in deploy/kubernetes calls it
PHP = "docker.io/example/orders-php:1"

_PHP_PACKAGES = "php-cli,php-curl,php-google-protobuf"
_PAUSE_SOURCE = """package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
"""


def sidecar() -> Path:
    """The archive that `make image` writes. Raises `Missing`."""
    done = subprocess.run([ROOT / "deploy/image/build", "--local"], stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise Missing("the image of the sidecar could not be built")
    return ARCHIVE


def php(folder: Path, handler: Path) -> Path:
    """A worker as its Dockerfile would make it: /app with the client in vendor, and the handler."""
    base = cache() / "image" / "php-bookworm.tar"
    with locked(base.with_suffix(".lock")):
        if not base.exists():
            print("making a base for PHP of Debian packages (once)", flush=True)
            made = base.with_suffix(".new")
            command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={_PHP_PACKAGES}"]
            slim = ["--aptopt=APT::Install-Recommends false", "--dpkgopt=path-exclude=/usr/share/doc/*"]
            subprocess.run([*command, *slim, "--format=tar", "bookworm", made], check=True)
            made.rename(base)
    app = folder / "app"
    shutil.copytree(ROOT / "clients/php", app / "vendor/offramp/offramp", ignore=shutil.ignore_patterns("tests"))
    (app / "vendor/bin").mkdir()
    (app / "vendor/bin/offramp-worker").symlink_to("../offramp/offramp/bin/offramp-worker")
    shutil.copy(handler, app / "handler.php")
    layer = folder / "app.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(app, "app")
    return _archive(folder / "php.tar", PHP, [base, layer], ["php"])


def pause(folder: Path) -> Path:
    """What holds a pod's namespaces."""
    source = folder / "pause.go"
    source.write_text(_PAUSE_SOURCE)
    subprocess.run(
        ["go", "build", "-ldflags=-s -w", "-o", folder / "pause", source],
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
    )
    layer = folder / "pause-layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(folder / "pause", "pause")
    return _archive(folder / "pause.tar", PAUSE, [layer], ["/pause"])


def _archive(path: Path, name: str, layers: Sequence[Path], entrypoint: Sequence[str]) -> Path:
    """An image in the format of `docker save`."""
    config = {
        "architecture": _architecture(),
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "User": "65534"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}" for layer in layers]},
    }
    names = [f"{number}.tar" for number in range(len(layers))]
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": names}]
    with tempfile.TemporaryDirectory(dir=path.parent) as made, tarfile.open(path, "w") as tar:
        for file, value in (("config.json", config), ("manifest.json", manifest)):
            (Path(made) / file).write_text(json.dumps(value))
            tar.add(Path(made) / file, file)
        for file, layer in zip(names, layers, strict=True):
            tar.add(layer, file)
    return path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _architecture() -> str:
    return subprocess.run(["go", "env", "GOARCH"], capture_output=True, text=True, check=True).stdout.strip()
