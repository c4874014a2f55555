"""Sidecars of one group, each a process with worker processes of its own."""

from pathlib import Path
from typing import Any, Self

from tests.e2e.harness import Sidecar, eventually
from tests.e2e.kafka.books import Books
from tests.e2e.load.crew import SUBSCRIPTION, Crew
from tests.e2e.pulsar.stock import Stock, take_stock
from tests.servers.pulsar import PulsarServer

#: seconds within which everything must be settled once the load is over
_PATIENCE = 90.0

#: workers of every other sidecar
_WAYS = (("threads",), ("stream", "fetch"))


class Fleet:
    """Numbered in the order in which they came."""

    def __init__(
        self,
        folder: Path,
        server: PulsarServer,
        topic: str,
        lanes: int,
        kind: str,
        *,
        drain: str = "10s",
        **settings: Any,
    ) -> None:
        self.sidecars: list[Sidecar] = []
        self.crews: list[Crew] = []
        self.books = Books()
        self.topic = topic
        self.lanes = lanes
        self._folder = folder
        self._server = server
        self._kind = kind
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
        crew = Crew(sidecar, *(ways or _WAYS[len(self.crews) % 2]), **naps)
        self.crews.append(crew)
        crew.__enter__()
        return sidecar

    def works(self, sidecar: Sidecar, records: int = 50) -> None:
        """Wait until it has done something."""
        before = sidecar.status().counters.acked
        eventually(
            lambda: sidecar.status().counters.acked >= before + records, f"{sidecar.folder.name} works", _PATIENCE
        )

    def read(self) -> Books:
        """What the workers noted until now."""
        self.books.read([journal for crew in self.crews for journal in crew.journals])
        return self.books

    def check(self) -> Stock:
        """Nothing is acked at the broker that no worker acked. May be asked at any time."""
        stock = take_stock(self._server, self.group, self.topic, self.lanes)
        early = self.read().committed_too_early(stock)
        assert not early, early[:10]
        return stock

    def backlog(self) -> int:
        """Of the topic, and of what was parked."""
        topics = (self.topic, f"{self.group}.offramp.retry")
        return sum(self._server.backlog(topic, self.group) for topic in topics)

    def finish(self) -> Stock:
        """Wait until the group has nothing left, as Pulsar counts it, and check everything."""
        eventually(lambda: self.backlog() == 0, "the backlog is zero", _PATIENCE)
        for sidecar in self.sidecars:
            if sidecar.process.poll() is None:
                assert sidecar.terminate() == 0
        stock = self.check()
        books = self.books
        for problems in (books.unaccounted(stock), books.settled_and_not_committed(stock)):
            assert not problems, problems[:10]
        assert not books.surprises, books.surprises[:10]
        print(
            f"{len(stock.records)} records, {books.deliveries} deliveries, {books.repeats} of them again after an ack, "
            f"{len(stock.dead)} dead letters, {len(stock.parked)} parked"
        )
        return stock

    def _new(self) -> Sidecar:
        folder = self._folder / f"s{len(self.sidecars)}"
        folder.mkdir()
        pulsar = {
            "type": "pulsar",
            "url": self._server.url,
            "admin_url": self._server.admin_url,
            "subscription_type": self._kind,
            # Little, so that every sidecar has something.
            "receiver_queue": 50,
        }
        subscription = {
            **SUBSCRIPTION,
            "broker": "pulsar",
            "topics": [self.topic],
            "group": self.group,
            **self._settings,
        }
        return Sidecar(
            folder, subscriptions={"orders": subscription}, brokers={"pulsar": pulsar}, drain={"deadline": self._drain}
        )
