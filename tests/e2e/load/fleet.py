"""Sidecars of one group, each a process with worker processes of its own. Subclasses are for one broker."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from tests.e2e.harness import Sidecar, eventually
from tests.e2e.load.audit import BrokerSnapshot, JournalAudit
from tests.e2e.load.processes import SUBSCRIPTION, Workers

S = TypeVar("S", bound=BrokerSnapshot)

#: seconds within which everything must be settled once the load is over; a lost member of a group costs six of them
SETTLE_TIMEOUT = 240.0

#: workers of every other sidecar
_WAYS = (("threads",), ("stream", "fetch"))


class Fleet(ABC, Generic[S]):
    """Sidecars, numbered in the order of their start."""

    #: what the broker is called in the configuration
    broker: str

    def __init__(self, folder: Path, topic: str, lanes: int, *, drain: str = "10s", **settings: Any) -> None:
        self.sidecars: list[Sidecar] = []
        self.workers: list[Workers] = []
        self.audit = JournalAudit()
        self.topic = topic
        self.lanes = lanes
        self._folder = folder
        self._drain = drain
        self._settings = settings

    @property
    def group(self) -> str:
        return f"{self.topic}-group"

    @abstractmethod
    def _broker_settings(self, name: str) -> Mapping[str, Any]:
        """What the configuration of the sidecar of this name says of the broker."""

    @abstractmethod
    def _take_snapshot(self) -> S: ...

    @abstractmethod
    def _is_done(self) -> bool:
        """The group has come to the end of every lane, those of its retry topic too."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        for workers in self.workers:
            workers.__exit__()
        for sidecar in self.sidecars:
            sidecar.__exit__(kind, error, trace)

    def add(self, *ways: str, **naps: float) -> Sidecar:
        """One more sidecar, ready, with workers."""
        sidecar = self._new()
        self.sidecars.append(sidecar)
        sidecar.start()
        workers = Workers(sidecar, *(ways or _WAYS[len(self.workers) % 2]), **naps)
        self.workers.append(workers)
        workers.__enter__()
        return sidecar

    def works(self, sidecar: Sidecar, records: int = 50) -> None:
        """Wait until it has done something."""
        before = sidecar.status().counters.acked
        eventually(
            lambda: sidecar.status().counters.acked >= before + records, f"{sidecar.folder.name} works", SETTLE_TIMEOUT
        )

    def read(self) -> JournalAudit:
        """Reads what the workers have noted so far."""
        self.audit.read([journal for workers in self.workers for journal in workers.journals])
        return self.audit

    def check(self) -> S:
        """Nothing is committed that no worker acked. May be asked at any time."""
        # The broker first: then the acks for its commits are in the journals.
        snapshot = self._take_snapshot()
        early = self.read().committed_too_early(snapshot)
        assert not early, early[:10]
        return snapshot

    def finish(self) -> S:
        """Wait until the group has nothing left, and check everything."""
        try:
            eventually(self._is_done, "the group has nothing left, in its retry topic neither", SETTLE_TIMEOUT)
        except AssertionError as error:
            held = [sidecar.status() for sidecar in self.sidecars if sidecar.process.poll() is None]
            raise AssertionError(f"{error}\n{self._what_is_left()}\n{held}") from error
        for sidecar in self.sidecars:
            if sidecar.process.poll() is None:
                assert sidecar.terminate() == 0
        snapshot = self.check()
        audit, repeats = self.audit, self.audit.repeats
        for problems in (audit.unaccounted(snapshot), audit.settled_and_not_committed(snapshot)):
            assert not problems, problems[:10]
        assert not audit.surprises, [audit.timeline(entry.spot) for entry in audit.surprises[:3]]
        print(
            f"{len(snapshot.records)} records, {audit.deliveries} deliveries, {repeats} of them again after an ack, "
            f"{len(snapshot.dead)} dead letters, {len(snapshot.parked)} parked"
        )
        return snapshot

    def _what_is_left(self) -> str:
        """As the broker sees it, for people."""
        return ""

    def _new(self) -> Sidecar:
        folder = self._folder / f"s{len(self.sidecars)}"
        folder.mkdir()
        told = {"broker": self.broker, "topics": [self.topic], "group": self.group}
        return Sidecar(
            folder,
            subscriptions={"orders": {**SUBSCRIPTION, **told, **self._settings}},
            brokers={self.broker: self._broker_settings(folder.name)},
            drain={"deadline": self._drain},
        )
