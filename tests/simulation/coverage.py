"""What a campaign must have exercised, so that finding nothing means something."""

from tests.simulation.broker.faults import RATES
from tests.simulation.checker.promises import PROMISES
from tests.simulation.workers.fetching import CALL_FAULTS
from tests.simulation.workers.handler import HABITS

#: besides random faults of the broker, faults of calls and habits of workers
HAPPENINGS = (
    "a commit is applied that nobody waits for",
    "a commit meets a lane that is gone",
    "a client does not read",
    "a gap is told",
    "a lane comes later",
    "a late settlement is accepted",
    "a lease expires",
    "a lease expires that was never written",
    "a late settlement that is not final",
    "a lease from before a restart",
    "a lease is extended",
    "a record is too large to park",
    "a settlement is repeated",
    "a stale answer",
    "a worker dies",
    "an invalid settlement",
    "another sidecar works on a lane",
    "other settings in a later life",
    "nothing was in hand when it stopped",
    "dead letter",
    "grace is over before the release",
    "lanes are lost",
    "lanes are revoked",
    "park",
    "pause",
    "poison",
    "possibly processed",
    "records are removed by retention",
    "redrive",
    "redrive leaves out what was redriven before",
    "seek",
    "several settlements in a request",
    "the handler is down",
    "the sidecar crashes",
    "the time of day jumps",
    "two subscriptions in a request",
)

#: each of them must occur in some share of the histories
EXPECTED = frozenset((*PROMISES, *RATES, *HABITS, *CALL_FAULTS, *HAPPENINGS))
