"""What is wrong with a manifest that its schema allows: names that lead nowhere, words that are not known, and what the
`restricted` Pod Security Standard forbids. Each check takes plain YAML and returns problems as sentences; none is good.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Manifest = Mapping[str, Any]

#: kinds of volumes that `restricted` allows
_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
#: words that the schema takes for any text
_WORDS = {
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "protocol": {"TCP", "UDP", "SCTP"},
    "medium": {"", "Memory"},
    "terminationMessagePolicy": {"File", "FallbackToLogsOnError"},
    "scheme": {"HTTP", "HTTPS"},
    "dnsPolicy": {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"},
}
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def pod_of(manifest: Manifest) -> Manifest | None:
    """The spec of the pods that a manifest makes, or None."""
    if manifest["kind"] == "Pod":
        return _map(manifest["spec"])
    template = _map(manifest.get("spec")).get("template")
    return _map(_map(template)["spec"]) if template else None


def containers_of(pod: Manifest) -> list[Manifest]:
    return [*pod.get("initContainers", ()), *pod.get("containers", ())]


def problems(manifests: Iterable[Manifest]) -> list[str]:
    """Everything that is wrong with manifests that are applied together."""
    manifests = list(manifests)
    found = []
    for manifest in manifests:
        pod = pod_of(manifest)
        if pod is None:
            continue
        where = f"{manifest['kind']} {manifest['metadata']['name']}"
        checks = (names_in(pod), words_in(pod), restart_policies(manifest, pod), references(pod, manifests))
        found += [f"{where}: {text}" for check in (*checks, labels(manifest), unrestricted(pod)) for text in check]
    return found


def names_in(pod: Manifest) -> Iterator[str]:
    """Names within the pod that lead nowhere, or to two things."""
    volumes = [volume["name"] for volume in pod.get("volumes", ())]
    names = [container["name"] for container in containers_of(pod)]
    yield from (f"there are two volumes {name}" for name in _twice(volumes))
    yield from (f"there are two containers {name}" for name in _twice(names))
    for container in containers_of(pod):
        mounts = container.get("volumeMounts", ())
        for mount in mounts:
            if mount["name"] not in volumes:
                yield f"{container['name']} mounts {mount['name']}, which is not a volume"
        yield from (f"{container['name']} mounts {path} twice" for path in _twice(m["mountPath"] for m in mounts))
        ports = {port.get(key) for port in container.get("ports", ()) for key in ("name", "containerPort")}
        for probe in _PROBES:
            port = _map(_map(container.get(probe)).get("httpGet")).get("port")
            if port is not None and port not in ports:
                yield f"the {probe} of {container['name']} asks port {port}, which is not one of its ports"


def words_in(value: object) -> Iterator[str]:
    """Words that Kubernetes does not know, anywhere."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in _WORDS and isinstance(inner, str) and inner not in _WORDS[key]:
                yield f"{key}: {inner} is not one of {', '.join(sorted(_WORDS[key]))}"
            yield from words_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from words_in(inner)


def restart_policies(manifest: Manifest, pod: Manifest) -> Iterator[str]:
    allowed = {"Job": ("Never", "OnFailure"), "Pod": ("Always", "Never", "OnFailure")}.get(
        manifest["kind"], ("Always",)
    )
    if pod.get("restartPolicy", "Always") not in allowed:
        yield f"restartPolicy {pod.get('restartPolicy', 'Always')} is not one of {', '.join(allowed)}"
    for container in pod.get("initContainers", ()):
        policy = container.get("restartPolicy", "Always")
        if policy != "Always":
            yield f"restartPolicy {policy} of {container['name']}: an init container has Always, or none"
        if "restartPolicy" not in container and any(probe in container for probe in _PROBES):
            yield f"{container['name']} has probes and is not a sidecar"
    for container in pod.get("containers", ()):
        if "restartPolicy" in container:
            yield f"{container['name']} has a restartPolicy, which only an init container may have"


def references(pod: Manifest, manifests: Iterable[Manifest]) -> Iterator[str]:
    """ConfigMaps and Secrets that are needed and not there."""
    there = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    for volume in pod.get("volumes", ()):
        for kind, key, name in (("ConfigMap", "configMap", "name"), ("Secret", "secret", "secretName")):
            source = _map(volume.get(key))
            if source and not source.get("optional") and (kind, source[name]) not in there:
                yield f"the volume {volume['name']} needs {kind} {source[name]}, which is not there"


def labels(manifest: Manifest) -> Iterator[str]:
    """A Deployment that does not select its own pods."""
    spec = _map(manifest.get("spec"))
    wanted = _map(_map(spec.get("selector")).get("matchLabels"))
    has = _map(_map(_map(spec.get("template")).get("metadata")).get("labels"))
    for key, value in wanted.items():
        if has.get(key) != value:
            yield f"it selects {key}={value}, and its pods are not labelled so"


def unrestricted(pod: Manifest) -> Iterator[str]:
    """What the `restricted` Pod Security Standard forbids."""
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key):
            yield f"{key} is forbidden"
    for volume in pod.get("volumes", ()):
        for kind in set(volume) - {"name"} - _VOLUMES:
            yield f"the volume {volume['name']} is a {kind}, which is forbidden"
    whole = _map(pod.get("securityContext"))
    if whole.get("sysctls"):
        yield "sysctls are forbidden"
    for container in containers_of(pod):
        own = _map(container.get("securityContext"))
        yield from (f"{container['name']} {text}" for text in _unrestricted(container, own, {**whole, **own}))


def _unrestricted(container: Manifest, own: Manifest, context: Manifest) -> Iterator[str]:
    capabilities = _map(own.get("capabilities"))
    if own.get("privileged"):
        yield "is privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "does not forbid allowPrivilegeEscalation"
    if own.get("procMount", "Default") != "Default":
        yield "has a procMount of its own"
    if context.get("runAsNonRoot") is not True:
        yield "does not say runAsNonRoot"
    if context.get("runAsUser") == 0:
        yield "runs as root"
    if _map(context.get("seccompProfile")).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "has no seccompProfile"
    if "ALL" not in capabilities.get("drop", ()):
        yield "does not drop ALL capabilities"
    if set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield "adds capabilities"
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield "has a hostPort"


def _twice(values: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [value for value in values if value in seen or seen.add(value)]  # type: ignore[func-returns-value]


def _map(value: Any) -> Manifest:
    return value if isinstance(value, Mapping) else {}
