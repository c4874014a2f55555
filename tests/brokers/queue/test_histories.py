"""Random histories of the mechanism on a queue in memory, with faults: nothing is acked that was not settled, and
everything else comes again, flagged."""

import asyncio
import os
import random
from collections.abc import Coroutine
from math import inf
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from sidecar.brokers.base import Lost, SourceSpec
from sidecar.brokers.queue.broker import QueueBroker
from sidecar.brokers.queue.driver import Limits
from sidecar.brokers.queue.source import QueueSource
from sidecar.core.state.ledger import Ledger
from sidecar.model.errors import BrokerError
from sidecar.model.records import Assigned, Lane, Message, Run
from sidecar.model.wire import decode_frame
from tests.brokers.queue.harness import PLAIN, STREAM, broker_on
from tests.brokers.queue.memory_driver import Faults, Handle, Nature, Server
from tests.simulation.virtual_time import VirtualClock, VirtualLoop

T = TypeVar("T")

SETTINGS = settings(
    max_examples=300 if os.environ.get("OFFRAMP_TEST_LONG") else 15,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
NATURES = {
    "plain": PLAIN,
    "stream": STREAM,
    "leases": Nature(lease=30.0, channels=False),
    "stream with leases": Nature(lease=30.0, channels=False, numbered=True),
    "delays": Nature(longest_delay=20.0, longest_return_delay=20.0),
    "limits": Nature(limits=Limits(hold=300.0, deliveries=6)),
}
sides = st.integers(0, 1)


class Sidecar:
    """A source, and what it was given."""

    def __init__(self, broker: QueueBroker[Handle]) -> None:
        spec = SourceSpec("group", ("topic",), own_topics={"own": 1})
        self.source: QueueSource[Handle] = broker.subscribe(spec)
        self.opened = False
        self.ledgers: dict[Lane, Ledger] = {}
        #: by lane and position: the value of each record in hand
        self.records: dict[Lane, dict[int, bytes]] = {}


class QueueHistory(RuleBasedStateMachine):
    nature = PLAIN

    @initialize(seed=st.integers(0, 1 << 16), chaotic=st.booleans(), slow=st.sampled_from([0, 0, 3]))
    def start(self, seed: int, chaotic: bool, slow: int) -> None:
        # How busy the machine is must not change a history.
        self.loop = VirtualLoop()
        self.server = Server(self.nature)
        faults = self.server.faults
        faults.rng, faults.slow = random.Random(seed), slow
        if chaotic:
            faults.shuffle = 0.3
            faults.wrong_count = 0.2
            # Only where a handle can run out does a message come again to whoever holds it.
            faults.duplicate = 0.1 if self.nature.lease < inf else 0.0
        self.published: list[bytes] = []
        self.delivered: set[bytes] = set()
        self.settled: set[bytes] = set()
        self.server.make("topic")
        self.server.make("topic.1")
        self.sidecars = [self.sidecar(), self.sidecar()]
        for side in range(2):
            self.poll(side, 1)

    def sidecar(self) -> Sidecar:
        return Sidecar(broker_on(self.server, VirtualClock(self.loop)))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    @rule(count=st.integers(1, 30), lane=st.integers(0, 1))
    def publish(self, count: int, lane: int) -> None:
        self.server.faults.away, away = False, self.server.faults.away
        values = [b"%d" % (len(self.published) + index) for index in range(count)]
        self.published += values
        broker = broker_on(self.server, VirtualClock(self.loop))
        self.run(broker.publish("topic", [Message(None, value, lane=lane) for value in values]))
        self.server.faults.away = away

    @rule(side=sides, most=st.integers(1, 60))
    def poll(self, side: int, most: int) -> None:
        sidecar = self.sidecars[side]

        async def body() -> None:
            try:
                if not sidecar.opened:
                    await sidecar.source.open()
                    sidecar.opened = True
                for _ in range(20):
                    await asyncio.sleep(0)
                polled = await sidecar.source.poll(most, 1 << 20, 0.0)
            except BrokerError:
                return
            for event in polled.events:
                if isinstance(event, Assigned):
                    sidecar.ledgers[event.lane] = Ledger(event.start)
                    sidecar.records[event.lane] = {}
                elif isinstance(event, Lost):
                    for lane in event.lanes:
                        del sidecar.ledgers[lane], sidecar.records[lane]
            for chunk in polled.chunks:
                before = sidecar.ledgers[chunk.lane].tracked
                assert [*chunk.positions] == sorted(set(chunk.positions))
                assert chunk.positions[0] >= before, "the core would take these for duplicates"
                sidecar.ledgers[chunk.lane].track(chunk.positions)
                for position, frame in zip(chunk.positions, chunk.frames, strict=True):
                    value = decode_frame(frame).value or b""
                    # The core flags what comes from its own topic.
                    flagged = chunk.possibly_processed or chunk.lane.topic == "own"
                    assert flagged or value not in self.delivered, "comes again without a flag"
                    sidecar.records[chunk.lane][position] = value
                self.delivered |= {decode_frame(frame).value or b"" for frame in chunk.frames}

        self.run(body())
        self.check()

    @rule(side=sides, share=st.floats(0.0, 1.0), data=st.randoms(use_true_random=False))
    def settle(self, side: int, share: float, data: random.Random) -> None:
        """Workers ack some of what they have."""
        sidecar = self.sidecars[side]
        for lane, records in sidecar.records.items():
            for position in [position for position in records if data.random() < share]:
                self.settled.add(records.pop(position))
                sidecar.ledgers[lane].settle(Run(position, position + 1))

    @rule(side=sides)
    def commit(self, side: int) -> None:
        sidecar = self.sidecars[side]
        commits = {
            lane: commit
            for lane, ledger in sidecar.ledgers.items()
            if (commit := ledger.committable(with_beyond=True)) is not None
        }
        if not commits:
            return

        async def body() -> None:
            try:
                await sidecar.source.commit(commits)
            except BrokerError:
                return
            for lane, commit in commits.items():
                sidecar.ledgers[lane].commit_sent()
                sidecar.ledgers[lane].commit_done(commit)

        self.run(body())
        self.check()

    @rule()
    def connections_are_cut(self) -> None:
        async def body() -> None:
            self.server.cut()

        self.run(body())

    @rule(lost=st.integers(0, 2), refused=st.integers(0, 2))
    def acks_fail(self, lost: int, refused: int) -> None:
        self.server.faults.acks_lost, self.server.faults.acks_refused = lost, refused

    @rule(away=st.booleans(), renewals_fail=st.booleans())
    def the_broker_comes_and_goes(self, away: bool, renewals_fail: bool) -> None:
        self.server.faults.away, self.server.faults.renewals_fail = away, renewals_fail

    @rule(seconds=st.sampled_from([0.5, 3.0, 12.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        async def body() -> None:
            await asyncio.sleep(seconds)

        self.run(body())

    @rule(side=sides, lane=st.integers(0, 1), resume=st.booleans())
    def pause(self, side: int, lane: int, resume: bool) -> None:
        source = self.sidecars[side].source
        self.run((source.resume if resume else source.pause)([Lane("topic", lane)]))

    @rule(side=sides)
    def a_sidecar_restarts(self, side: int) -> None:
        self.run(self.sidecars[side].source.close())
        self.sidecars[side] = self.sidecar()
        self.check()

    def check(self) -> None:
        assert not self.server.misused, "a handle was acked by a receiver that had not given it out"
        left = set()
        for queue in self.server.queues.values():
            for share in queue.shares.values():
                assert not share.dropped, "the broker gave up on a message"
                left |= {stored.message.value for stored in share.messages.values()}
        lost = set(self.published) - left - self.settled
        assert not lost, f"acked at the broker, and settled by nobody: {sorted(lost)}"

    def teardown(self) -> None:
        if not hasattr(self, "sidecars"):
            return
        self.server.faults = Faults()
        try:
            self.finish()
        finally:
            for sidecar in self.sidecars:
                self.run(sidecar.source.close())
            self.run(self.loop.shutdown_default_executor())
            self.loop.close()

    def finish(self) -> None:
        """Without faults, everything is delivered and settled in the end."""
        for _ in range(200):
            for side in range(2):
                for lane in range(2):
                    self.pause(side, lane, resume=True)
                self.poll(side, 1000)
                self.settle(side, 1.0, random.Random(0))
                self.commit(side)
            if not any(share.messages for queue in self.server.queues.values() for share in queue.shares.values()):
                break
            self.time_passes(1.0)
        assert self.delivered >= set(self.published), "never delivered"
        assert not any(share.messages for queue in self.server.queues.values() for share in queue.shares.values())


@pytest.mark.parametrize("nature", NATURES.values(), ids=NATURES)
def test_histories(nature: Nature) -> None:
    run_state_machine_as_test(type("History", (QueueHistory,), {"nature": nature}), settings=SETTINGS)
