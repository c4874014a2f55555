"""What docs/kubernetes.md tells people to write does what it says."""

import os
import re
from pathlib import Path

import pytest
import yaml

from sidecar import config
from sidecar.brokers.local import LocalOptions
from sidecar.model.version import VERSION
from tests.e2e.harness import Sidecar
from tests.kubernetes import checks, manifests
from tests.servers.tools import Missing, give_up

GUIDE = (manifests.ROOT / "docs/kubernetes.md").read_text()
CONFIG, KUSTOMIZATION, GATED, CLAIMED, NETWORK, NETWORKED, SERVICE = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
(JOB,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
COMPONENT = "../offramp/deploy/kubernetes/sidecar"


def render(folder: Path, kustomization: str, *, told: str = CONFIG, kind: str = "Deployment") -> str:
    app = (manifests.FOLDER / "examples/php/app/deployment.yaml").read_text()
    (folder / "deployment.yaml").write_text(app.replace("kind: Deployment", f"kind: {kind}"))
    (folder / "offramp.yaml").write_text(told)
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
    assert sidecar["image"] == f"your/registry/offramp:{VERSION}"
    assert f"docker push your/registry/offramp:{VERSION}\n" in GUIDE
    assert f'docker run --rm -v "$PWD:/etc/offramp:ro" offramp:{VERSION} lint' in GUIDE


def test_the_patch_for_pods_that_only_consume_gates_their_readiness(tmp_path: Path) -> None:
    made = list(yaml.safe_load_all(render(tmp_path, KUSTOMIZATION + GATED)))
    assert checks.problems(made) == []
    (deployment,) = (manifest for manifest in made if manifest["kind"] == "Deployment")
    (sidecar,) = deployment["spec"]["template"]["spec"]["initContainers"]
    assert sidecar["args"] == ["run", "--gate-readiness"]
    assert sidecar["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert sidecar["restartPolicy"] == "Always"


def test_a_statefulset_gets_a_volume_that_the_embedded_broker_may_write_to(tmp_path: Path) -> None:
    made = list(yaml.safe_load_all(render(tmp_path, KUSTOMIZATION + CLAIMED, kind="StatefulSet")))
    (found,) = (manifest["spec"] for manifest in made if manifest["kind"] == "StatefulSet")
    (claim,) = found["volumeClaimTemplates"]
    pod = found["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    where = LocalOptions().directory
    assert {"name": claim["metadata"]["name"], "mountPath": where} in sidecar["volumeMounts"]
    assert pod["securityContext"]["fsGroup"] == sidecar["securityContext"]["runAsGroup"]


def test_callers_from_outside_find_a_port_a_service_and_files_that_are_closed_to_others(tmp_path: Path) -> None:
    file = tmp_path / "told.yaml"
    file.write_text(CONFIG + NETWORK)
    settings = config.load(str(file), environ={})
    made = list(yaml.safe_load_all(render(tmp_path, KUSTOMIZATION + NETWORKED, told=CONFIG + NETWORK)))
    assert [text.partition(" needs ")[2] for text in checks.problems(made)] == [
        "Secret offramp-tls, which is not there",
        "Secret offramp-tokens, which is not there",
    ]
    (deployment,) = (manifest for manifest in made if manifest["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    service = yaml.safe_load(SERVICE)["spec"]
    port = int(settings.listen.tcp.rpartition(":")[2])
    assert port in [one["containerPort"] for one in sidecar["ports"]]
    assert [one["targetPort"] for one in service["ports"]] == [port]
    assert service["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert pod["securityContext"]["fsGroup"] == sidecar["securityContext"]["runAsGroup"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    folders = {mount["mountPath"]: volumes[mount["name"]] for mount in sidecar["volumeMounts"]}
    tokens = [client.token_file for client in settings.clients.values()]
    for path in (settings.listen.tls_certificate, settings.listen.tls_key, *tokens):
        assert folders[str(Path(path).parent)]["secret"]["defaultMode"] == 0o440
    private = folders[str(Path(settings.listen.admin_socket).parent)]["name"]
    assert [
        mount for container in pod["containers"] for mount in container["volumeMounts"] if mount["name"] == private
    ] == []


def test_apps_with_a_configuration_each_live_under_one_parent(tmp_path: Path) -> None:
    for name in ("orders", "billing"):
        (tmp_path / name).mkdir()
        prefix = f"namePrefix: {name}-\n"
        assert f"`{prefix.strip()}`" in GUIDE
        render(tmp_path / name, KUSTOMIZATION + prefix, told=CONFIG.replace("[orders]", f"[{name}]"))
    (tmp_path / "kustomization.yaml").write_text("resources: [orders, billing]\n")
    made = list(yaml.safe_load_all(manifests.render(tmp_path)))
    assert checks.problems(made) == []
    told = {manifest["metadata"]["name"]: manifest for manifest in made if manifest["kind"] == "ConfigMap"}
    for manifest in made:
        if manifest["kind"] == "Deployment":
            name = manifest["metadata"]["name"].partition("-")[0]
            volumes = {volume["name"]: volume for volume in manifest["spec"]["template"]["spec"]["volumes"]}
            its = told[volumes["offramp-config"]["configMap"]["name"]]
            assert f"topics: [{name}]" in its["data"]["offramp.yaml"]


def test_the_job_ends_when_nothing_more_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "take(timeout=30)" in JOB
    done: list[bytes | None] = []
    with Sidecar(tmp_path, subscriptions={"payments": {"topics": ["payments"]}}) as sidecar:
        sidecar.publish("payments", [b"1", b"2", b"3"])
        monkeypatch.setenv("OFFRAMP_ADDRESS", sidecar.target)
        impatient = JOB.replace("timeout=30", "timeout=30 if len(done) < 3 else 0.1")
        told = {"reconcile": lambda batch: done.extend(record.value for record in batch), "done": done}
        exec(compile(impatient, "the guide", "exec"), told)
        assert sorted(filter(None, done)) == [b"1", b"2", b"3"]
        assert sidecar.status("payments").counters.acked == 3


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_every_example_is_in_the_guide(name: str) -> None:
    assert f"| `{name}` |" in GUIDE
