"""Scenarios by name: what each asks of its subscription, and the function that plays it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.clients.scenarios.stage import Place, Stage

Play = Callable[[Stage], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    place: Place
    play: Play
    #: it stops and starts its sidecar, which it therefore shares with none. The stage's sidecar is not started yet
    alone: bool
    #: of a sidecar of its own
    settings: Mapping[str, Any] = field(default_factory=dict)


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *,
    alone: bool = False,
    replies: bool = False,
    other: bool = False,
    sidecar: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Callable[[Play], Play]:
    """The function's name is the scenario's. `settings` are those of its subscription."""

    def register(play: Play) -> Play:
        name = play.__name__
        SCENARIOS[name] = Scenario(name, Place(settings, replies, other), play, alone, sidecar or {})
        return play

    return register
