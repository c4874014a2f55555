"""The examples of deploy/kubernetes, and what kustomize makes of them.

`make manifests` (`python -m tests.kubernetes.manifests`) writes the files of `rendered/`, which are for those who do
without kustomize, and for tests that need not build it.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.programs import kustomize

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/kubernetes"
EXAMPLES = tuple(sorted(path.name for path in (FOLDER / "examples").iterdir()))

_HEAD = "# Made by `make manifests` from ../examples/{name}: change that instead.\n"


def rendered(name: str) -> Path:
    """The file of an example."""
    return FOLDER / "rendered" / f"{name}.yaml"


def read(name: str) -> list[dict[str, Any]]:
    """What the file of an example says."""
    return list(yaml.safe_load_all(rendered(name).read_text()))


def render(folder: Path) -> str:
    """What kustomize makes of a folder. Raises `Missing` if there is no kustomize."""
    done = subprocess.run([kustomize(), "build", folder], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def text_of(name: str) -> str:
    """What the file of an example should say. Raises `Missing`."""
    return _HEAD.format(name=name) + render(FOLDER / "examples" / name)


def write() -> None:
    for name in EXAMPLES:
        rendered(name).parent.mkdir(exist_ok=True)
        rendered(name).write_text(text_of(name))
        print(rendered(name).relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    write()
