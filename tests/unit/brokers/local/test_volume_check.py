"""`offramp lint` refuses a data directory that is deleted with the pod."""

from pathlib import Path

import pytest

from sidecar import config
from sidecar.brokers.local import volume_check
from sidecar.brokers.local.volume_check import short_lived_volume

#: mounts of a container: its root, a claim, an emptyDir on disk and one in memory, and a name with a space
MOUNTS = r"""
410 380 0:52 / / ro,relatime master:143 - overlay overlay rw,lowerdir=/a,upperdir=/b,workdir=/c
411 410 0:55 / /proc rw,nosuid - proc proc rw
420 410 8:1 /var/lib/kubelet/pods/1f/volumes/kubernetes.io~empty-dir/run /run/offramp rw,relatime - ext4 /dev/sda1 rw
421 410 8:1 /var/lib/kubelet/pods/1f/volumes/kubernetes.io~empty-dir/old\040data /srv/old\040data rw - ext4 /dev/sda1 rw
422 410 0:61 / /srv/memory rw,relatime - tmpfs tmpfs rw,size=1024k
423 410 8:16 / /srv/claim rw,relatime - ext4 /dev/sdb rw
424 410 8:1 /var/lib/kubelet/pods/1f/volumes/kubernetes.io~empty-dir/both /srv/both rw - ext4 /dev/sda1 rw
425 424 8:16 /both /srv/both rw,relatime - ext4 /dev/sdb rw
426 410 8:1 /srv/node /srv/node rw,relatime - ext4 /dev/sda1 rw
"""


@pytest.mark.parametrize(
    ("directory", "on"),
    [
        ("/run/offramp", "an emptyDir volume"),
        ("/run/offramp/deep/down", "an emptyDir volume"),
        ("/srv/old data", "an emptyDir volume"),
        ("/srv/memory", "a volume in memory"),
        ("/var/lib/offramp", "the container's own file system"),
        ("/srv/claims", "the container's own file system"),
    ],
)
def test_a_directory_that_is_deleted_with_the_pod_is_recognised(directory: str, on: str) -> None:
    assert (short_lived_volume(directory, MOUNTS) or "").startswith(on)


@pytest.mark.parametrize("kind", ["overlay", "btrfs", "ext4", "zfs", "fuse.fuse-overlayfs"])
def test_the_root_of_a_container_is_deleted_with_it_whatever_its_file_system(kind: str) -> None:
    mounts = f"410 380 0:52 / / ro,relatime - {kind} root rw\n423 410 8:16 / /srv/claim rw - ext4 /dev/sdb rw\n"
    assert (short_lived_volume("/var/lib/offramp", mounts) or "").startswith("the container's own file system")
    assert short_lived_volume("/srv/claim", mounts) is None


@pytest.mark.parametrize("directory", ["/srv/claim", "/srv/claim/offramp", "/srv/node/x", "/srv/both"])
def test_a_directory_on_a_volume_that_stays_is_fine(directory: str) -> None:
    assert short_lived_volume(directory, MOUNTS) is None


def lint(tmp_path: Path, text: str, **environ: str) -> list[str]:
    file = tmp_path / "offramp.yaml"
    file.write_text(text)
    try:
        config.load(str(file), environ=environ)
    except config.InvalidConfigError as error:
        return [line.partition("offramp.yaml:")[2] for line in error.lines]
    return []


@pytest.fixture
def in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(volume_check, "_MOUNTS", mounts)


@pytest.mark.usefixtures("in_a_pod")
def test_lint_refuses_such_a_directory_and_says_what_to_do(tmp_path: Path) -> None:
    text = "brokers:\n  spool:\n    type: local\n    directory: /run/offramp/data\n"
    (line,) = lint(tmp_path, text, KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert line == (
        '4: brokers.spool.directory: "/run/offramp/data" is on an emptyDir volume, which goes with the pod: messages '
        "that are not settled by then would be lost. Mount a persistent volume there, or set ephemeral: true if that "
        "is meant"
    )


@pytest.mark.usefixtures("in_a_pod")
def test_the_broker_that_needs_no_entry_is_checked_too(tmp_path: Path) -> None:
    (line,) = lint(tmp_path, "subscriptions: {orders: {topics: [orders]}}", KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert 'brokers.local.directory: "/var/lib/offramp" is on the container\'s own file system' in line


@pytest.mark.usefixtures("in_a_pod")
def test_such_a_directory_is_allowed_with_ephemeral(tmp_path: Path) -> None:
    text = "brokers: {local: {directory: /run/offramp/data, ephemeral: yes}}"
    assert lint(tmp_path, text, KUBERNETES_SERVICE_HOST="10.0.0.1") == []


@pytest.mark.usefixtures("in_a_pod")
def test_outside_of_kubernetes_every_directory_is_allowed(tmp_path: Path) -> None:
    assert lint(tmp_path, "brokers: {local: {directory: /run/offramp/data}}") == []


def test_nothing_is_refused_if_the_mounts_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_check, "_MOUNTS", tmp_path / "nowhere")
    assert lint(tmp_path, "brokers: {local: {directory: /data}}", KUBERNETES_SERVICE_HOST="10.0.0.1") == []
