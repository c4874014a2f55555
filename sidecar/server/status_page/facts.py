"""All that one picture of the page is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sidecar.observability.status import Status, SubscriptionStatus
from sidecar.server.status_page.events import Event
from sidecar.server.status_page.history import History
from sidecar.server.status_page.letters import Look
from sidecar.settings import BudgetSettings

#: a reason, and how many records
Counted = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionFacts:
    status: SubscriptionStatus
    #: what is wrong: its kind, and the sentence for people
    troubles: Sequence[tuple[str, str]] = ()
    history: History = field(default_factory=History)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    dead_for: Sequence[Counted] = ()
    parked_for: Sequence[Counted] = ()
    dead_letter_topic: str = ""
    letters: Look = field(default_factory=Look)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    status: Status
    subscriptions: Sequence[SubscriptionFacts] = ()
    #: the newest first
    events: Sequence[Event] = ()
    #: seconds since 1970
    now: float = 0.0
