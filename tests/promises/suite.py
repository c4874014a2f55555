"""The twelve promises as tests, for every broker.

A broker joins with a harness and one class:

    class TestKafka(Promises):
        @pytest.fixture
        def harness(self) -> Harness: ...

What it cannot promise it is let off by its traits, for the reason that `traits` gives, and for no other.
"""

from tests.promises.a_nack_replays import ANackReplays
from tests.promises.bounds import MemoryIsBounded
from tests.promises.drains import DrainIsOrderly
from tests.promises.nothing_is_lost import NothingIsLost
from tests.promises.order import OrderAsChosen
from tests.promises.outage import AnOutageIsNotPoison
from tests.promises.poison import PoisonIsIsolated
from tests.promises.rebalance import RebalanceIsSafe
from tests.promises.restarts import ARestartForgetsLittle
from tests.promises.settles import ASettleIsAnsweredTruthfully
from tests.promises.slow_records import OneSlowRecordHoldsUpNobodyElse
from tests.promises.suspects import SuspectsKeepNobodyWaiting
from tests.promises.traces import ATraceGoesThrough
from tests.promises.workers import WorkersAreNotBoundToPartitions


class Promises(
    NothingIsLost,
    ANackReplays,
    SuspectsKeepNobodyWaiting,
    ASettleIsAnsweredTruthfully,
    OrderAsChosen,
    OneSlowRecordHoldsUpNobodyElse,
    WorkersAreNotBoundToPartitions,
    MemoryIsBounded,
    RebalanceIsSafe,
    ARestartForgetsLittle,
    DrainIsOrderly,
    PoisonIsIsolated,
    AnOutageIsNotPoison,
    ATraceGoesThrough,
):
    """All of them, and that traces go through. A subclass gives the fixture `harness`."""
