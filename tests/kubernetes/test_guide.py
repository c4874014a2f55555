"""What docs/kubernetes.md tells people to write does what it says."""

import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from sidecar import config
from tests.kubernetes import checks, manifests
from tests.servers.tools import Missing, give_up

GUIDE = (manifests.ROOT / "docs/kubernetes.md").read_text()
CONFIG, KUSTOMIZATION, GATED = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
COMPONENT = "../offramp/deploy/kubernetes/sidecar"


def render(folder: Path, kustomization: str) -> str:
    app = manifests.FOLDER / "examples/php/app"
    shutil.copy(app / "deployment.yaml", folder)
    (folder / "offramp.yaml").write_text(CONFIG)
    here = os.path.relpath(manifests.FOLDER / "sidecar", folder)
    (folder / "kustomization.yaml").write_text(kustomization.replace(COMPONENT, here))
    try:
        return manifests.render(folder)
    except Missing as missing:
        give_up(missing)


def test_the_configuration_is_in_order(tmp_path: Path) -> None:
    file = tmp_path / "offramp.yaml"
    file.write_text(CONFIG)
    assert list(config.load(str(file), environ={}).subscriptions) == ["orders"]


def test_the_kustomization_makes_a_deployment_that_consumes(tmp_path: Path) -> None:
    assert COMPONENT in KUSTOMIZATION
    made = list(yaml.safe_load_all(render(tmp_path, KUSTOMIZATION)))
    assert checks.problems(made) == []
    (deployment,) = (manifest for manifest in made if manifest["kind"] == "Deployment")
    (sidecar,) = deployment["spec"]["template"]["spec"]["initContainers"]
    assert sidecar["image"].startswith("your/registry/offramp:")


def test_the_patch_for_pods_that_only_consume_gates_their_readiness(tmp_path: Path) -> None:
    made = list(yaml.safe_load_all(render(tmp_path, KUSTOMIZATION + GATED)))
    assert checks.problems(made) == []
    (deployment,) = (manifest for manifest in made if manifest["kind"] == "Deployment")
    (sidecar,) = deployment["spec"]["template"]["spec"]["initContainers"]
    assert sidecar["args"] == ["run", "--gate-readiness"]
    assert sidecar["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert sidecar["restartPolicy"] == "Always"


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_every_example_is_in_the_guide(name: str) -> None:
    assert f"| `{name}` |" in GUIDE
