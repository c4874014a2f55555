"""The twelve promises as tests for every broker: one module for each promise, and one class of all of them.

A broker joins with a harness and one class:

    class TestKafka(Promises):
        @pytest.fixture
        def harness(self) -> Harness: ...

Tests of what its traits do not claim are skipped, for the reason that `exemptions` gives, and no others.

nothing_is_lost               1
nack_replays                  2
settle_is_truthful            3
order_as_chosen               4
slow_record_holds_up_nobody   5
suspects_keep_nobody_waiting  2 and 5, while a record is suspected of crashing workers
workers_not_bound_to_lanes    6
memory_is_bounded             7
rebalance_is_safe             8
restart_forgets_little        9
drain_is_orderly              10
poison_is_isolated            11
outage_is_not_poison          12
trace_goes_through            no promise by number, but it holds on every broker
"""

from tests.promises.suite.drain_is_orderly import DrainIsOrderly
from tests.promises.suite.memory_is_bounded import MemoryIsBounded
from tests.promises.suite.nack_replays import NackReplays
from tests.promises.suite.nothing_is_lost import NothingIsLost
from tests.promises.suite.order_as_chosen import OrderAsChosen
from tests.promises.suite.outage_is_not_poison import OutageIsNotPoison
from tests.promises.suite.poison_is_isolated import PoisonIsIsolated
from tests.promises.suite.rebalance_is_safe import RebalanceIsSafe
from tests.promises.suite.restart_forgets_little import RestartForgetsLittle
from tests.promises.suite.settle_is_truthful import SettleIsTruthful
from tests.promises.suite.slow_record_holds_up_nobody import SlowRecordHoldsUpNobody
from tests.promises.suite.suspects_keep_nobody_waiting import SuspectsKeepNobodyWaiting
from tests.promises.suite.trace_goes_through import TraceGoesThrough
from tests.promises.suite.workers_not_bound_to_lanes import WorkersAreNotBoundToLanes


class Promises(
    NothingIsLost,
    NackReplays,
    SuspectsKeepNobodyWaiting,
    SettleIsTruthful,
    OrderAsChosen,
    SlowRecordHoldsUpNobody,
    WorkersAreNotBoundToLanes,
    MemoryIsBounded,
    RebalanceIsSafe,
    RestartForgetsLittle,
    DrainIsOrderly,
    PoisonIsIsolated,
    OutageIsNotPoison,
    TraceGoesThrough,
):
    """All of them. A subclass provides the fixture `harness`."""
