"""The image as `deploy/image/build --local` wrote it: what it says of itself, and its files."""

import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sidecar.model.version import VERSION
from tests.servers.tools import Missing

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "build" / f"offramp-{VERSION}.tar"
#: how a layer says that a file of those below it is gone
_GONE = ".wh."


@dataclass(frozen=True)
class Image:
    root: Path
    #: as in the OCI specification: Entrypoint, User, Labels, ...
    config: dict[str, Any]

    @property
    def bytes(self) -> int:
        """Of all files, each once, however many names it has."""
        files = (path.lstat() for path in self.root.rglob("*") if not path.is_dir() or path.is_symlink())
        return sum({(file.st_dev, file.st_ino): file.st_size for file in files}.values())


def unpack(folder: Path, built: Path = ARCHIVE) -> Image:
    """The image, in a folder. Raises `Missing` if it was not built, or if this user may not own its files."""
    if os.geteuid() != 0 or shutil.which("runc") is None:
        raise Missing("containers need root and runc (Debian: apt-get install runc)")
    if not built.exists():
        raise Missing(f"{built.relative_to(ROOT)} is not there; deploy/image/build --local makes it")
    layers, root = folder / "layers", folder / "root"
    root.mkdir()
    with tarfile.open(built) as archive:
        archive.extractall(layers, filter="data")
    (manifest,) = json.loads((layers / "manifest.json").read_text())
    for layer in manifest["Layers"]:
        _apply(layers / layer, root)
    config = json.loads((layers / manifest["Config"]).read_text())["config"]
    shutil.rmtree(layers)
    return Image(root, config)


def _apply(layer: Path, root: Path) -> None:
    # Devices and owners are the business of tar, not of Python's filters.
    subprocess.run(["tar", "-xf", layer, "-C", root, "--numeric-owner", f"--exclude={_GONE}*"], check=True)
    with tarfile.open(layer) as tar:
        gone = [
            root / name.parent / name.name.removeprefix(_GONE) for name in _paths(tar) if name.name.startswith(_GONE)
        ]
    for path in gone:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _paths(tar: tarfile.TarFile) -> list[Path]:
    return [Path(name) for name in tar.getnames()]
