"""Sidecars of one group, each a process with worker processes of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.e2e.harness import Sidecar, eventually
from tests.e2e.kafka.books import Books
from tests.e2e.kafka.stock import Stock, progress, take_stock
from tests.e2e.load.crew import SUBSCRIPTION, Crew
from tests.e2e.load.journal import Spot
from tests.servers.kafka import KafkaServer

#: seconds within which everything must be settled once the load is over; a lost member costs six of them
_PATIENCE = 90.0


#: lanes of the retry topic, unless told otherwise
RETRY_LANES = 8
#: workers of every other sidecar
_WAYS = (("threads",), ("stream", "fetch"))


class Fleet:
    """Numbered in the order in which they came."""

    def __init__(
        self,
        folder: Path,
        kafka: KafkaServer,
        topic: str,
        lanes: int,
        *,
        protocol: str = "auto",
        drain: str = "10s",
        **settings: Any,
    ) -> None:
        self.sidecars: list[Sidecar] = []
        self.crews: list[Crew] = []
        self.books = Books()
        self.topic = topic
        self.lanes = lanes
        self._folder = folder
        self._kafka = kafka
        self._protocol = protocol
        self._drain = drain
        self._settings = settings

    @property
    def group(self) -> str:
        return f"{self.topic}-group"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        for crew in self.crews:
            crew.__exit__()
        for sidecar in self.sidecars:
            sidecar.__exit__(kind, error, trace)

    def add(self, *ways: str, **naps: float) -> Sidecar:
        """One more sidecar, ready, with workers."""
        sidecar = self._new()
        self.sidecars.append(sidecar)
        sidecar.start()
        self.staff(sidecar, *ways, **naps)
        return sidecar

    def staff(self, sidecar: Sidecar, *ways: str, **naps: float) -> Crew:
        crew = Crew(sidecar, *(ways or _WAYS[len(self.crews) % 2]), **naps)
        self.crews.append(crew)
        crew.__enter__()
        return crew

    def acked_by(self, sidecar: Sidecar) -> int:
        return sidecar.status().counters.acked

    def works(self, sidecar: Sidecar, records: int = 50) -> None:
        """Wait until it has done something."""
        before = self.acked_by(sidecar)
        eventually(lambda: self.acked_by(sidecar) >= before + records, f"{sidecar.folder.name} works", _PATIENCE)

    def acked(self) -> set[Spot]:
        """Until now, by anyone."""
        self.books.read([journal for crew in self.crews for journal in crew.journals])
        return self.books.acked

    def left(self) -> dict[int, int]:
        """How many positions of each lane the group has before it."""
        stock = progress(self._kafka, self.group, self.topic, self.lanes)
        return {lane: end - stock.positions[lane] for lane, end in stock.ends.items()}

    def taken(self) -> set[Spot]:
        """What was ever given to a worker."""
        self.acked()
        return {entry.spot for entry in self.books.entries}

    def check(self) -> Stock:
        """Nothing is committed that was not acked. May be asked at any time."""
        stock = take_stock(self._kafka, self.group, self.topic, self.lanes)
        self.acked()
        early = self.books.committed_too_early(stock)
        assert not early, early[:10]
        return stock

    def finish(self) -> Stock:
        """Wait until the group has come to the end of every lane, and check everything."""
        eventually(self._is_done, "the group is at the end of every lane, those of its retry topic too", _PATIENCE)
        for sidecar in self.sidecars:
            if sidecar.process.poll() is None:
                assert sidecar.terminate() == 0
        stock = self.check()
        for problems in (self.books.unaccounted(stock), self.books.settled_and_not_committed(stock)):
            assert not problems, problems[:10]
        assert not self.books.surprises, [self.books.story(entry.spot) for entry in self.books.surprises[:3]]
        print(
            f"{len(stock.records)} records, {self.books.deliveries} deliveries, {self.books.repeats} of them again "
            f"after an ack, {len(stock.dead)} dead letters, {len(stock.parked)} parked"
        )
        return stock

    def _is_done(self) -> bool:
        topics = {self.topic: self.lanes, f"{self.group}.offramp.retry": RETRY_LANES}
        return all(progress(self._kafka, self.group, topic, lanes).is_done for topic, lanes in topics.items())

    def _new(self) -> Sidecar:
        folder = self._folder / f"s{len(self.sidecars)}"
        folder.mkdir()
        kafka: dict[str, Any] = {
            "type": "kafka",
            "servers": [self._kafka.bootstrap],
            "group_protocol": self._protocol,
            "properties": {"client.id": folder.name},
        }
        if self._protocol == "classic":
            kafka["properties"] |= {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
        subscription: Mapping[str, Any] = {
            **SUBSCRIPTION,
            "broker": "kafka",
            "topics": [self.topic],
            "group": self.group,
            **self._settings,
        }
        return Sidecar(
            folder, subscriptions={"orders": subscription}, brokers={"kafka": kafka}, drain={"deadline": self._drain}
        )
