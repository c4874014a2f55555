"""Everything that one page is rendered from."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sidecar.observability.status import Status, SubscriptionStatus
from sidecar.server.status_page.charts import History
from sidecar.server.status_page.dead_letter_feed import DeadLetters
from sidecar.server.status_page.event_list import Event
from sidecar.settings import BudgetSettings

#: a reason, and the number of records with it
ReasonCount = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionFacts:
    status: SubscriptionStatus
    #: each with its kind and a sentence for people
    troubles: Sequence[tuple[str, str]] = ()
    history: History = field(default_factory=History)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    dead_for: Sequence[ReasonCount] = ()
    parked_for: Sequence[ReasonCount] = ()
    dead_letter_topic: str = ""
    dead_letters: DeadLetters = field(default_factory=DeadLetters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    status: Status
    subscriptions: Sequence[SubscriptionFacts] = ()
    #: the newest first
    events: Sequence[Event] = ()
    #: seconds since 1970
    now: float = 0.0
