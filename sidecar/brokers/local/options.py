"""What can be configured for a broker of type `local`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from sidecar.brokers.base import BrokerOptions, Traits
from sidecar.brokers.local import volume_check
from sidecar.settings import Bytes, Seconds, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions(BrokerOptions):
    traits: ClassVar[Traits] = Traits(
        keeps_acks_beyond=True,
        keeps_reach=True,
        rebalances=False,
        lanes_are_exclusive=True,
        seeks=True,
        reads_ranges=True,
        creates_topics=True,
        deletes_groups=True,
        deduplicates=True,
        finds_left_topics=True,
    )

    directory: str = setting(
        "The data directory. Created if missing; one sidecar at a time can use it.", "/var/lib/offramp"
    )
    ephemeral: bool = setting(
        "In Kubernetes, allow a `directory` on a volume that is deleted with the pod, and the messages with it.", False
    )
    lanes: int = setting(
        "Lanes of a topic that is created on the fly. An existing topic keeps its lanes.", 4, at_least=1, at_most=1024
    )
    max_topics: int = setting(
        "Publishing creates a topic only while there are fewer. Topics of subscriptions, and those for retries and "
        "dead letters, are always created. 0: publishing creates none.",
        1_000,
        at_least=0,
    )
    retention_age: Seconds = setting(
        "Remove records that were published longer ago. 0 keeps them whatever their age.",
        Seconds(7 * 24 * 3600.0),
        at_least=0.0,
    )
    retention_bytes: Bytes = setting(
        "Remove the oldest records of a topic that holds more than this. 0 sets no limit.", Bytes(1 << 30), at_least=0
    )
    retention_ignores_groups: bool = setting(
        "Remove records by age and size even if a group has not settled them. Off: they are kept until every group "
        "of their topic has.",
        False,
    )
    reserve_bytes: Bytes = setting(
        "Disk space held back, so that settling and retention continue when the disk is full.",
        Bytes(8 << 20),
        at_least=1 << 20,
    )
    max_record_bytes: Bytes = setting(
        "Size of the largest record: key, value and headers.", Bytes(16 << 20), at_least=1024, at_most=512 << 20
    )

    def problems_here(self, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        what = None if self.ephemeral else volume_check.problem(self.directory, environ)
        if what is not None:
            yield (
                "directory",
                f'"{self.directory}" is on {what}: messages that are not settled by then would be lost. Mount a '
                "persistent volume there, or set ephemeral: true if that is meant",
            )
