"""What every broker is asked by a round."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests.chaos.acts import Act
from tests.chaos.history import Claim, Stock
from tests.chaos.line import Line
from tests.chaos.plan import Plan
from tests.servers.server import Server


def topic_of(plan: Plan) -> str:
    """Of a round. One that is played again on the same broker has another."""
    return f"orders-{plan.seed}-{plan.number}-{secrets.token_hex(3)}"


class Scene(ABC):
    """One round's topic and group."""

    def __init__(self, topic: str = "orders") -> None:
        #: as publishers and sidecars know it
        self.topic = topic

    @property
    def group(self) -> str:
        return f"{self.topic}-group"

    @property
    @abstractmethod
    def broker_settings(self) -> Mapping[str, Any]:
        """What a sidecar's configuration says of the broker."""

    @abstractmethod
    def publisher_address(self, socket: str) -> str:
        """Where a publisher finds the broker; `socket` is that of the first sidecar."""

    @abstractmethod
    def claims(self) -> list[Claim]:
        """How far the group is now. Empty where the broker itself keeps a record of that. May fail with `OSError`
        while the broker is away."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether the group has come to the end of everything, its retry topic too. False while nobody can say."""

    @abstractmethod
    def stock(self) -> Stock:
        """What the broker has, when the round is over and no sidecar runs any more."""

    def fill_disk(self) -> None:
        """Nothing more fits on the disk."""
        raise NotImplementedError

    def free_disk(self) -> None:
        raise NotImplementedError

    def close(self, keep: Path | None) -> None:  # noqa: B027 - most have nothing to give back
        """Give back what the round had. `keep`: where to put what a person may want to look at."""


class Stage(ABC):
    #: faults that cannot be made here, and why
    cannot: Mapping[Act, str] = {}
    #: the server, where there is one, and the line that sidecars reach it by
    server: Server | None = None
    line: Line | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def scene(self, plan: Plan, folder: Path) -> Scene:
        """For one round, in its folder."""

    def logs(self) -> Collection[Path]:
        """What the server has to say, over all rounds."""
        return [self.server.log] if self.server is not None else []

    def close(self) -> None:
        if self.line is not None:
            self.line.close()
        if self.server is not None:
            self.server.discard()
