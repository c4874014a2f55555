"""What a round needs of a broker."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests.chaos.checker.history import BrokerSnapshot, Commit
from tests.chaos.faults import FaultKind
from tests.chaos.plan import Plan
from tests.chaos.proxy_process import ProxyProcess
from tests.servers.server import Server


def name_of(plan: Plan) -> str:
    """Of a round. One that is played again on the same broker has another."""
    return f"orders-{plan.seed}-{plan.number}-{secrets.token_hex(3)}"


class RoundTopic(ABC):
    """One round's topic and group."""

    def __init__(self, name: str = "orders") -> None:
        #: as publishers and sidecars know it
        self.name = name

    @property
    def group(self) -> str:
        return f"{self.name}-group"

    @abstractmethod
    def broker_settings(self, who: str) -> Mapping[str, Any]:
        """What the configuration of the sidecar `who` says of the broker."""

    @abstractmethod
    def publisher_address(self, socket: str) -> str:
        """Where a publisher finds the broker; `socket` is that of the first sidecar."""

    @abstractmethod
    def commits(self) -> list[Commit]:
        """What the group has committed. Empty where the broker itself keeps a record of that. May fail with `OSError`
        while the broker is away."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether the group has come to the end of everything, its retry topic too. False while nobody can say."""

    @abstractmethod
    def snapshot(self) -> BrokerSnapshot:
        """What the broker has, when the round is over and no sidecar runs any more."""

    def fill_disk(self) -> None:
        """Fill the disk of the broker."""
        raise NotImplementedError

    def free_disk(self) -> None:
        raise NotImplementedError

    def close(self, keep: Path | None) -> None:  # noqa: B027 - most have nothing to give back
        """Give back what the round had. `keep`: where to put what a person may want to look at."""


class Broker(ABC):
    """One broker, for many rounds."""

    #: faults that cannot be made here, and why
    cannot: Mapping[FaultKind, str] = {}
    #: the server, where there is one, and the proxy that sidecars reach it by
    server: Server | None = None
    proxy: ProxyProcess | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def new_topic(self, plan: Plan, folder: Path) -> RoundTopic:
        """For one round, in its folder."""

    def logs(self) -> Collection[Path]:
        """The logs of the server, over all rounds."""
        return [self.server.log] if self.server is not None else []

    def close(self) -> None:
        if self.proxy is not None:
            self.proxy.close()
        if self.server is not None:
            self.server.discard()
