"""The demo in numbers, and the folder in which all of it happens."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from sidecar.cli.demo.orders import Kind

TOPIC = "orders"
#: the name of the subscription, and so of its group
SUBSCRIPTION = "shop"
BROKER = "local"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is published, by whom it is handled, and what goes wrong on purpose."""

    records: int = 320_000
    workers: int = 4
    lanes: int = 8
    #: the share of them that is published before the first worker comes
    backlog: float = 0.4
    #: seconds over which the others are published
    live_for: float = 24.0
    #: the lane whose orders take long, and about how many seconds it is at work
    slow_lane: int = 3
    slow_for: float = 24.0
    #: records of a batch, and how far a lane may be delivered past its commit
    batch: int = 250
    window: int = 4_000
    #: a pre-order asks to come back after so many seconds; what must wait longer than `park_after` is parked
    wait: float = 12.0
    park_after: float = 5.0
    attempts: int = 3
    pre_orders: int = 60
    refunds: int = 12
    torn: int = 5
    #: seconds between the death of a worker and its return
    absence: float = 4.0

    @classmethod
    def quick(cls) -> Self:
        """The same in small, for tests."""
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
        """How many batches of the slow lane can be in workers' hands: the window bounds it."""
        return self.window // self.batch

    @property
    def slow_seconds(self) -> float:
        """What an order of the slow lane takes, so that the lane is at work for `slow_for`."""
        return self.slow_for * self.slow_batches / (self.records / self.lanes)

    @property
    def handlers(self) -> int:
        """Threads of a worker. With one worker killed, half of those that are left suffice for the slow lane."""
        return max(8, -(-2 * self.slow_batches // (self.workers - 1)))

    @property
    def patience(self) -> float:
        """Seconds after which the demo stops waiting and lets the checker say what is missing."""
        return 60.0 + self.live_for + self.slow_for + self.records / 8_000

    @cached_property
    def kinds(self) -> Mapping[int, Kind]:
        """The orders that are not plain, by their numbers. Shares say when in the demo their time comes."""
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


@dataclass(frozen=True)
class Folder:
    """Everything of one demo is in here."""

    path: Path

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def config(self) -> Path:
        return self.path / "offramp.yaml"

    @property
    def socket(self) -> Path:
        return self.path / "offramp.sock"

    @property
    def data(self) -> Path:
        """The embedded broker."""
        return self.path / "data"

    @property
    def journals(self) -> Path:
        """What publishers and workers noted themselves."""
        return self.path / "journals"

    @property
    def output(self) -> Path:
        """What the processes printed."""
        return self.path / "output"

    def journal(self, name: str) -> Path:
        return self.journals / f"{name}.log"

    @property
    def address(self) -> str:
        return f"unix:{self.socket}"

    def make(self) -> None:
        for path in (self.path, self.journals, self.output):
            path.mkdir(parents=True, exist_ok=True)


def configuration(plan: Plan, folder: Folder) -> str:
    """What the sidecar is started with."""
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
