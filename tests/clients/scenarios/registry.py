"""Scenarios by name: what each asks of its subscription, and the function that plays it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.clients.scenarios.environment import Requirements, ScenarioEnvironment

Play = Callable[[ScenarioEnvironment], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    place: Requirements
    play: Play
    #: it stops and starts its sidecar, which it therefore shares with none. Its sidecar is not started yet
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
        SCENARIOS[name] = Scenario(name, Requirements(settings, replies, other), play, alone, sidecar or {})
        return play

    return register
