"""The numbers of the demo, and the folder that it runs in."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from sidecar.cli.demo.orders import Kind

TOPIC = "orders"
#: name of the subscription and of its group
SUBSCRIPTION = "shop"
BROKER = "local"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is published and processed, and what fails on purpose."""

    records: int = 320_000
    workers: int = 4
    lanes: int = 8
    #: the share of the records that is published before the first worker starts
    backlog: float = 0.4
    #: seconds over which the others are published
    live_for: float = 24.0
    #: the lane whose orders take long, and about how many seconds its work takes
    slow_lane: int = 3
    slow_for: float = 24.0
    #: `batch.records` and `window.records`
    batch: int = 250
    window: int = 4_000
    #: seconds that a pre-order asks to wait; a record that waits longer than `park_after` is parked
    wait: float = 12.0
    park_after: float = 5.0
    attempts: int = 3
    pre_orders: int = 60
    refunds: int = 12
    torn: int = 5
    #: seconds between the kill of a worker and the start of its replacement
    absence: float = 4.0

    @classmethod
    def quick(cls) -> Self:
        """A small plan of a few seconds."""
        return cls(
            records=24_000,
            workers=3,
            lanes=4,
            live_for=2.0,
            slow_for=9.0,
            window=2_000,
            wait=2.0,
            park_after=1.0,
            pre_orders=12,
            refunds=4,
            torn=2,
            absence=0.5,
        )

    @property
    def backlog_records(self) -> int:
        return int(self.records * self.backlog)

    @property
    def slow_batches(self) -> int:
        """How many batches of the slow lane can be in flight: the window limits it."""
        return self.window // self.batch

    @property
    def slow_seconds(self) -> float:
        """Processing time of an order of the slow lane, so that the lane takes `slow_for`."""
        return self.slow_for * self.slow_batches / (self.records / self.lanes)

    @property
    def handlers(self) -> int:
        """Threads of a worker. While one worker is killed, half of the remaining threads suffice for the slow lane."""
        return max(8, -(-2 * self.slow_batches // (self.workers - 1)))

    @property
    def timeout(self) -> float:
        """Seconds after which the demo stops waiting, and the audit shows what is missing."""
        return 60.0 + self.live_for + self.slow_for + self.records / 8_000

    @cached_property
    def kinds(self) -> Mapping[int, Kind]:
        """The orders that are not plain, by number. `start` and `stop` are shares of all orders."""
        kinds: dict[int, Kind] = {}
        for kind, count, start, stop in (
            (Kind.PRE_ORDER, self.pre_orders, 0.42, 0.44),
            (Kind.REFUND, self.refunds, 0.46, 0.53),
            (Kind.TORN, self.torn, 0.5, 0.53),
            (Kind.FLAKY, max(1, self.records // 1_000), 0.02, 0.98),
        ):
            for index in range(count):
                number = int(self.records * (start + (stop - start) * index / count))
                while number in kinds or number % self.lanes == self.slow_lane:
                    number += 1
                kinds[number] = kind
        return kinds

    def save(self, folder: "Folder") -> None:
        folder.plan.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, folder: "Folder") -> Self:
        return cls(**json.loads(folder.plan.read_text()))


class Folder:
    """The files of a demo."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan = path / "plan.json"
        self.config = path / "offramp.yaml"
        self.socket = path / "offramp.sock"
        self.address = f"unix:{self.socket}"
        #: of the embedded broker
        self.data = path / "data"
        #: what publishers and workers write down themselves
        self.journals = path / "journals"
        #: of the processes
        self.output = path / "output"

    def journal(self, name: str) -> Path:
        return self.journals / f"{name}.log"

    def make(self) -> None:
        for path in (self.path, self.journals, self.output):
            path.mkdir(parents=True, exist_ok=True)


def configuration(plan: Plan, folder: Folder) -> str:
    """The configuration file of the sidecar."""
    return f"""\
listen:
  socket: {folder.socket}
http:
  address: ""
drain:
  deadline: 10s
brokers:
  {BROKER}:
    type: local
    directory: {folder.data}
    lanes: {plan.lanes}
subscriptions:
  {SUBSCRIPTION}:
    broker: {BROKER}
    topics: [{TOPIC}]
    batch:
      records: {plan.batch}
    window:
      records: {plan.window}
    retry:
      attempts: {plan.attempts}
      first: 200ms
    parking:
      after: {plan.park_after}s
"""
