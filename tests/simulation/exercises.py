"""The names of all that histories put to the test: promises, faults of the broker, and habits of the workers."""

from tests.simulation.faults import RATES
from tests.simulation.fetchers import TROUBLE
from tests.simulation.handler import HABITS

PROMISES = (
    "1 nothing is lost",
    "2 a nack replays",
    "3 a settle is answered truthfully",
    "4 order as chosen",
    "5 one slow record holds up nobody else",
    "6 workers are not bound to partitions",
    "7 memory is bounded",
    "8 rebalance is safe",
    "9 a restart forgets little",
    "10 drain is orderly",
    "11 poison is isolated",
    "12 an outage is not poison",
)
#: besides those that strike by themselves, and besides the habits of workers
HAPPENINGS = (
    "a commit is applied that nobody waits for",
    "a commit meets a lane that is gone",
    "a gap is told",
    "a late settlement is accepted",
    "a lease expires",
    "a lease from before a restart",
    "a lease is extended",
    "a settlement is repeated",
    "a stale answer",
    "a worker dies",
    "an invalid settlement",
    "another sidecar works on a lane",
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
    "seek",
    "the handler is down",
    "the sidecar crashes",
)

#: what every run must have exercised, so that finding nothing means something
EXPECTED = frozenset((*PROMISES, *RATES, *HABITS, *TROUBLE, *HAPPENINGS))
