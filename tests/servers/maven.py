"""Jars of a pinned version from a Maven repository, in a cache that outlives the tree.

    folder = Jars("kafka-server", "4.3.1", ["org.apache.kafka:kafka_2.13:4.3.1"]).fetch()

The first call downloads; later ones check what is there against a manifest of sizes and SHA-256, and download again
if it does not match. Any number of processes may ask at once. Which repository is asked is Maven's own setting.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.tools import Missing, tool

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_MANIFEST = "manifest.json"
#: seconds; the largest set is 250 MB
_DOWNLOAD_TIMEOUT = 1200.0

#: folders that this process has checked already
_checked: set[Path] = set()


def cache() -> Path:
    """The folder of everything that was downloaded."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "offramp"


@dataclass(frozen=True)
class Jars:
    """A set of jars, with all that they need."""

    name: str
    version: str
    #: group:artifact:version, or group:artifact where a BOM says the version
    dependencies: Sequence[str]
    #: group:artifact:version of the BOMs that say which versions go together
    boms: Sequence[str] = ()
    #: group:artifact:version of what they need in another version than they say
    pinned: Sequence[str] = ()
    #: what the first download costs, to tell whoever waits for it
    megabytes: int = 0

    @property
    def folder(self) -> Path:
        return cache() / f"{self.name}-{self.version}"

    def fetch(self) -> Path:
        """The folder of the jars, whole and checked. Raises `Missing` if Maven is needed and not there."""
        if self.folder in _checked:
            return self.folder
        with locked(self.folder.with_name(self.folder.name + ".lock")):
            if not self._is_whole():
                self._download()
        _checked.add(self.folder)
        return self.folder

    @property
    def _wanted(self) -> list[str]:
        return [*self.dependencies, *self.boms, *self.pinned]

    def _is_whole(self) -> bool:
        try:
            manifest = json.loads((self.folder / _MANIFEST).read_text())
            return bool(manifest["of"] == self._wanted and manifest["jars"] == _contents(self.folder))
        except (OSError, ValueError, KeyError):
            return False

    def _download(self) -> None:
        mvn = tool("mvn")
        size = f", about {self.megabytes} MB" if self.megabytes else ""
        print(f"fetching {self.name} {self.version} with Maven (once{size}) ...", file=sys.stderr, flush=True)
        # Beside its place, so that the rename at the end is one step: nobody ever sees a half.
        with tempfile.TemporaryDirectory(prefix=f"{self.name}-", dir=self.folder.parent) as made:
            jars = Path(made) / "jars"
            (Path(made) / "pom.xml").write_text(self._pom())
            done = subprocess.run(
                # -C: a file whose checksum is not the repository's is refused.
                [mvn, "-q", "-B", "-C", _PLUGIN, f"-DoutputDirectory={jars}", "-DincludeScope=runtime"],
                cwd=made,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_DOWNLOAD_TIMEOUT,
                check=False,
            )
            if done.returncode or not jars.is_dir():
                said = (done.stdout + done.stderr).strip()[-2000:]
                raise Missing(f"Maven could not fetch {self.name} {self.version}:\n{said}")
            manifest = {"of": self._wanted, "jars": _contents(jars)}
            (jars / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
            if self.folder.exists():
                shutil.rmtree(self.folder)
            jars.rename(self.folder)

    def _pom(self) -> str:
        boms = "".join(_dependency(bom, "<type>pom</type><scope>import</scope>") for bom in self.boms)
        pinned = "".join(map(_dependency, self.pinned))
        dependencies = "".join(map(_dependency, self.dependencies))
        return (
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>offramp.tests</groupId><artifactId>jars</artifactId><version>1</version>"
            "<packaging>pom</packaging>"
            f"<dependencyManagement><dependencies>{pinned}{boms}</dependencies></dependencyManagement>"
            f"<dependencies>{dependencies}</dependencies></project>\n"
        )


def _dependency(coordinates: str, more: str = "") -> str:
    group, artifact, *version = coordinates.split(":")
    told = "".join(f"<version>{one}</version>" for one in version)
    return f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>{told}{more}</dependency>"


def _contents(folder: Path) -> dict[str, list[object]]:
    """Size and SHA-256 of every jar."""
    return {
        jar.name: [jar.stat().st_size, hashlib.sha256(jar.read_bytes()).hexdigest()]
        for jar in sorted(folder.glob("*.jar"))
    }


@contextmanager
def locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
