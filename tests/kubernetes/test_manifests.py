"""What is in deploy/kubernetes would be taken by a cluster, is `restricted`, and does what docs/kubernetes.md says."""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from sidecar import config
from sidecar.model.version import VERSION
from tests.kubernetes import checks, manifests
from tests.servers.tools import Missing, give_up

NATIVE = tuple(name for name in manifests.EXAMPLES if name != "php-before-1.29")
ASIDE = {"ConfigMap", "Secret"}


def workload(name: str) -> dict[str, Any]:
    """The Deployment or Job of an example."""
    (found,) = (manifest for manifest in manifests.read(name) if manifest["kind"] not in ASIDE)
    return found


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = workload(name)["spec"]["template"]["spec"]
    return spec


def sidecar(name: str) -> dict[str, Any]:
    (found,) = (container for container in checks.containers_of(pod(name)) if container["name"] == "offramp")
    return dict(found)


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_the_rendered_manifests_are_what_kustomize_makes_of_the_examples(name: str) -> None:
    try:
        fresh = manifests.text_of(name)
    except Missing as missing:
        give_up(missing)
    assert manifests.rendered(name).read_text() == fresh, "run `make manifests`"


def test_every_rendered_manifest_has_its_example() -> None:
    assert sorted(path.stem for path in (manifests.FOLDER / "rendered").iterdir()) == list(manifests.EXAMPLES)


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_the_schema_of_old_and_new_clusters_takes_it(name: str) -> None:
    for version in ("1.29", "1.37") if name in NATIVE else ("1.25", "1.28"):
        for manifest in manifests.read(name):
            kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_names_words_and_pod_security_are_in_order(name: str) -> None:
    assert checks.problems(manifests.read(name)) == []


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_its_configuration_is_in_order_in_a_pod(name: str, tmp_path: Path) -> None:
    (told,) = (manifest for manifest in manifests.read(name) if manifest["kind"] == "ConfigMap")
    file = tmp_path / "offramp.yaml"
    file.write_text(told["data"]["offramp.yaml"])
    environ = {variable["name"]: variable["value"] for variable in sidecar(name)["env"]}
    settings = config.load(str(file), environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1", **environ})
    folders = [mount["mountPath"] for mount in sidecar(name)["volumeMounts"] if mount["name"] == "offramp-socket"]
    assert [str(Path(settings.listen.socket).parent)] == folders
    assert settings.http.address.rpartition(":")[2] == str(sidecar(name)["ports"][0]["containerPort"])
    assert settings.subscriptions


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_its_probes_ask_the_port_that_the_sidecar_listens_on(name: str) -> None:
    container = sidecar(name)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    (address,) = (one["value"] for one in container["env"] if one["name"] == "OFFRAMP_HTTP__ADDRESS")
    probes = {probe: container[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe")}
    asked = {probe: ports.get(port, port) for probe, port in probes.items()}
    assert asked == dict.fromkeys(probes, int(address.rpartition(":")[2]))


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_files_that_the_configuration_names_are_in_the_secret(name: str) -> None:
    (told,) = (manifest for manifest in manifests.read(name) if manifest["kind"] == "ConfigMap")
    options = yaml.safe_load(told["data"]["offramp.yaml"])["brokers"]
    wanted = {value for broker in options.values() for key, value in broker.items() if key.endswith("_file")}
    secrets = [manifest["stringData"] for manifest in manifests.read(name) if manifest["kind"] == "Secret"]
    assert wanted == {f"/run/secrets/offramp/{key}" for secret in secrets for key in secret}


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_every_container_of_the_app_gets_the_socket_read_only_and_its_group(name: str) -> None:
    for container in pod(name)["containers"]:
        assert _socket_mount(app=container["name"] != "offramp") in container["volumeMounts"]
    assert sidecar(name)["securityContext"]["runAsGroup"] in pod(name)["securityContext"]["supplementalGroups"]


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_the_sidecar_has_a_read_only_root_no_token_and_no_say_in_readiness(name: str) -> None:
    container = sidecar(name)
    assert container["image"] == f"offramp:{VERSION}"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    # The image's own user counts for nothing in a pod that says another one, such as root.
    assert container["securityContext"]["runAsUser"] == 65532
    assert "readinessProbe" not in container
    covered = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod(name)["volumes"]}
    assert volumes[covered["/var/run/secrets/kubernetes.io/serviceaccount"]]["emptyDir"] == {}


@pytest.mark.parametrize("name", NATIVE)
def test_the_sidecar_is_a_native_one(name: str) -> None:
    assert [(c["name"], c["restartPolicy"]) for c in pod(name)["initContainers"]] == [("offramp", "Always")]


def test_the_variant_for_old_clusters_differs_only_where_it_must() -> None:
    """What is mended in one and forgotten in the other would be found by a user of an old cluster."""
    native, plain = (yaml.safe_load((manifests.FOLDER / path).read_text()) for path in _PATCHES)
    (container,) = native["spec"]["template"]["spec"].pop("initContainers")
    assert container.pop("restartPolicy") == "Always"
    native["spec"]["template"]["spec"]["containers"] = [container]
    assert native == plain


_PATCHES = ("sidecar/sidecar.yaml", "plain-container/container.yaml")


def _broken(change: Callable[[dict[str, Any]], object]) -> list[str]:
    """What the checks say of the PHP example after a change to its pod."""
    found = copy.deepcopy(manifests.read("php"))
    (deployment,) = (manifest for manifest in found if manifest["kind"] == "Deployment")
    change(deployment["spec"]["template"]["spec"])
    return [text.removeprefix("Deployment orders: ") for text in checks.problems(found)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda pod: pod["volumes"].pop(), "offramp mounts offramp-no-token, which is not a volume"),
        (
            lambda pod: pod["initContainers"][0]["livenessProbe"]["httpGet"].update(port="http"),
            "the livenessProbe of offramp asks port http, which is not one of its ports",
        ),
        (
            lambda pod: pod["containers"][0].update(imagePullPolicy="Sometimes"),
            "imagePullPolicy: Sometimes is not one of Always, IfNotPresent, Never",
        ),
        (
            lambda pod: pod["initContainers"][0].update(restartPolicy="OnFailure"),
            "restartPolicy OnFailure of offramp: an init container has Always, or none",
        ),
        (lambda pod: pod["initContainers"][0].pop("restartPolicy"), "offramp has probes and is not a sidecar"),
        (
            lambda pod: pod["containers"][0].update(restartPolicy="Always"),
            "orders has a restartPolicy, which only an init container may have",
        ),
        (
            lambda pod: pod["initContainers"][0]["livenessProbe"]["httpGet"].update(port=4770),
            "the livenessProbe of offramp asks port 4770, which is not one of its ports",
        ),
        (lambda pod: pod.update(restartPolicy="Never"), "restartPolicy Never is not one of Always"),
        (
            lambda pod: pod["containers"][0]["volumeMounts"].append(
                {"name": "offramp-config", "mountPath": "/run/offramp"}
            ),
            "orders mounts /run/offramp twice",
        ),
        (lambda pod: pod.update(hostNetwork=True), "hostNetwork is forbidden"),
        (
            lambda pod: pod["volumes"].append({"name": "node", "hostPath": {"path": "/"}}),
            "the volume node is a hostPath, which is forbidden",
        ),
        (lambda pod: pod["securityContext"].update(runAsUser=0), "orders runs as root"),
        (lambda pod: pod["securityContext"].pop("runAsNonRoot"), "orders does not say runAsNonRoot"),
        (lambda pod: pod["securityContext"].pop("seccompProfile"), "orders has no seccompProfile"),
        (
            lambda pod: pod["containers"][0]["securityContext"].pop("capabilities"),
            "orders does not drop ALL capabilities",
        ),
        (
            lambda pod: pod["containers"][0]["securityContext"].pop("allowPrivilegeEscalation"),
            "orders does not forbid allowPrivilegeEscalation",
        ),
        (
            lambda pod: pod["containers"][0]["securityContext"]["capabilities"].update(add=["NET_ADMIN"]),
            "orders adds capabilities",
        ),
    ],
)
def test_the_checks_see_what_a_cluster_would_refuse(change: Callable[[dict[str, Any]], object], said: str) -> None:
    assert said in _broken(change)


def test_the_checks_see_a_configmap_that_is_not_there_and_pods_that_are_not_selected() -> None:
    found = [manifest for manifest in manifests.read("php") if manifest["kind"] == "Deployment"]
    found[0]["spec"]["selector"]["matchLabels"]["app"] = "others"
    said = checks.problems(found)
    assert any("the volume offramp-config needs ConfigMap offramp-" in text for text in said)
    assert "Deployment orders: it selects app=others, and its pods are not labelled so" in said


def _socket_mount(*, app: bool) -> dict[str, Any]:
    return {"name": "offramp-socket", "mountPath": "/run/offramp", "readOnly": app}


BARE = """
apiVersion: apps/v1
kind: {kind}
metadata: {{name: bare}}
spec:
  selector: {{matchLabels: {{app: bare}}}}
  template:
    metadata: {{labels: {{app: bare}}}}
    spec:
      containers:
        - {{name: app, image: app}}
        - {{name: helper, image: helper, volumeMounts: [{{name: own, mountPath: /own}}]}}
      volumes: [{{name: own, emptyDir: {{}}}}]
"""


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
@pytest.mark.parametrize("component", ["sidecar", "plain-container"])
def test_one_line_adds_the_sidecar_to_whatever_there_is(kind: str, component: str, tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(BARE.format(kind=kind))
    place = os.path.relpath(manifests.FOLDER / component, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"resources: [app.yaml]\ncomponents: [{place}]\n")
    try:
        (made,) = yaml.safe_load_all(manifests.render(tmp_path))
    except Missing as missing:
        give_up(missing)
    spec = made["spec"]["template"]["spec"]
    assert {c["name"] for c in checks.containers_of(spec)} == {"app", "helper", "offramp"}
    for container in checks.containers_of(spec):
        assert _socket_mount(app=container["name"] != "offramp") in container["volumeMounts"]
    (helper,) = (c for c in spec["containers"] if c["name"] == "helper")
    assert {"name": "own", "mountPath": "/own"} in helper["volumeMounts"]
    assert list(checks.names_in(spec)) == []


def test_init_containers_of_the_app_come_after_the_sidecar_and_have_the_socket(tmp_path: Path) -> None:
    app = yaml.safe_load(BARE.format(kind="Deployment"))
    app["spec"]["template"]["spec"]["initContainers"] = [{"name": "migrate", "image": "app"}]
    (tmp_path / "app.yaml").write_text(yaml.safe_dump(app))
    place = os.path.relpath(manifests.FOLDER / "sidecar", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"resources: [app.yaml]\ncomponents: [{place}]\n")
    try:
        (made,) = yaml.safe_load_all(manifests.render(tmp_path))
    except Missing as missing:
        give_up(missing)
    offramp, migrate = made["spec"]["template"]["spec"]["initContainers"]
    assert (offramp["name"], migrate["name"]) == ("offramp", "migrate")
    assert migrate["volumeMounts"] == [_socket_mount(app=True)]
    assert "restartPolicy" not in migrate
