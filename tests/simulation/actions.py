"""What happens in a history at random: records come, lanes move, operators act, the sidecar stops or dies."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sidecar.brokers.base import AtPosition, SeekTo
from sidecar.model.errors import BrokerError
from sidecar.model.records import Lane, Message
from sidecar.subscription.dead_letters import redrive
from tests.simulation.broker.simulated_broker import Redriver
from tests.simulation.broker.storage import LaneLog

if TYPE_CHECKING:
    from tests.simulation.history import History

#: about so many records are produced in a history
_MOST_RECORDS = 100
#: lanes of a topic that others are added to
_MOST_LANES = 7
_DAY_MS = 86_400_000


class Actions:
    def __init__(self, history: "History") -> None:
        self._history = history
        self.world = history.world
        self.rng = history.world.rng
        self.plan = history.plan
        self.broker = history.broker
        self.checker = history.checker
        self.handler = history.handler
        self.faults = history.faults
        self._produced = 0

    def weighted(self) -> tuple[list[Callable[[], Any]], list[float]]:
        """All actions, with the weights of this history."""
        rng = self.rng
        weights: list[tuple[Callable[[], Any], float]] = [
            (self._produce_some, 10.0),
            (lambda: None, 5.0),
            (self._history.crash, rng.choice((0.0, 0.0, 1.0))),
            (self._history.drain, rng.choice((0.0, 0.0, 1.0))),
            (self._revoke, rng.choice((0.0, 2.0))),
            (self._lose, rng.choice((0.0, 2.0))),
            (self.give, 3.0),
            (self._seek, rng.choice((0.0, 0.0, 1.0))),
            (self._outage, rng.choice((0.0, 0.0, 1.0))),
            (self._operator, rng.choice((0.0, 0.0, 1.0))),
            (self._burst, rng.choice((0.0, 1.0))),
            (self._retention, rng.choice((0.0, 0.0, 0.5))),
            (self._redrive, rng.choice((0.0, 0.0, 1.0))),
            (self._clock_jumps, rng.choice((0.0, 0.0, 0.5))),
            (lambda: self._history.neighbour.publish(self.rng.choice((1, 5))), rng.choice((0.0, 2.0))),
            (self._add_lane, rng.choice((0.0, 0.0, 0.5))),
        ]
        return [action for action, _ in weights], [weight for _, weight in weights]

    def produce(self, count: int, *, kinds: bool = True) -> None:
        rng, plan = self.rng, self.plan
        if kinds and self._produced > _MOST_RECORDS:
            return
        lanes = [log.lane for topic in plan.lanes for log in self.broker.storage.topics[topic]]
        busy = rng.choice(lanes)
        for _ in range(count):
            lane = busy if rng.random() < 0.3 else rng.choice(lanes)
            key = None if rng.random() < 0.15 else f"k{rng.randrange(plan.keys)}".encode()
            self._produced += 1
            size = plan.huge if plan.huge and rng.random() < 0.05 else rng.randrange(plan.largest)
            value = None if rng.random() < 0.05 else str(self._produced).encode() + b"." * size
            kind = "good"
            if kinds:
                dice = rng.random()
                kind = "poison" if dice < plan.poison else "killer" if dice < plan.poison + plan.killers else "good"
            copy = self.broker.storage.produce(lane, Message(key, value), self.broker.gap(), kind)
            self.checker.largest_record = max(self.checker.largest_record, copy.size)
        self.world.happened("produced", count)
        if self.broker.source is not None:
            self.broker.source.look()

    def _produce_some(self) -> None:
        self.produce(self.rng.choice((1, 2, 5, 10)))

    def _some_lanes(self) -> list[Lane]:
        source = self.broker.source
        lanes = sorted(source.readers) if source is not None else []
        return [lane for lane in lanes if self.rng.random() < 0.5]

    def _revoke(self) -> None:
        lanes = self._some_lanes()
        if lanes and self.broker.source is not None:
            self.world.exercised("lanes are revoked")
            self.broker.source.revoke(lanes, self.rng.choice((0.0, 0.5, 3.0)))

    def _lose(self) -> None:
        lanes = self._some_lanes()
        if lanes and self.broker.source is not None:
            self.world.exercised("lanes are lost")
            self.broker.source.lose(lanes)

    def give(self) -> None:
        """Lanes that another sidecar of the group had come back, perhaps after it settled some records."""
        source = self.broker.source
        if source is None or source.dead or not source.opened:
            return
        for log in source.logs():
            if log.owner == "other" and self.rng.random() < 0.7:
                if self.rng.random() < 0.6:
                    self._other_works(log)
                source.assign(log)

    def _other_works(self, log: LaneLog) -> None:
        if not log.pinned:
            return
        window, before = self._history.settings.window, log.committed
        ahead = [p for p in log.positions[log.from_(log.committed) :] if not log.has_settled(p)]
        done = self.rng.randrange(0, min(len(ahead), window.records) + 1)
        for position in ahead[:done]:
            log.copies[position].acked = True
        if done:
            self.world.exercised("another sidecar works on a lane")
            stop = ahead[done] if done < len(ahead) else log.end
            log.beyond = tuple(run for run in log.beyond if run.start > stop)
            log.committed = stop
        at = log.from_(log.committed)
        for position in log.positions[at : at + window.records][: self.rng.randrange(0, 4)]:
            if position < log.committed + window.span and not log.has_settled(position):
                log.copies[position].last_delivered_by = -1
                if self.plan.keeps_reach:
                    # As a sidecar does: before it delivers anything.
                    log.reach = max(before + window.span if log.reach is None else log.reach, position + 1)
        self.world.happened("other", log.lane, log.committed, log.reach)

    async def _seek(self) -> None:
        subscription, source = self._history.subscription, self.broker.source
        if subscription is None or source is None:
            return
        lanes = [lane for lane in subscription.lanes() if self.rng.random() < 0.5]
        targets = {}
        for lane in lanes:
            log = self.broker.storage.lanes[lane]
            targets[lane] = self.rng.choice((SeekTo.START, SeekTo.END, AtPosition(self.rng.randrange(0, log.end + 1))))
        if not targets:
            return
        self.world.happened("seek", targets)
        try:
            await subscription.seek(targets)
        except BrokerError as error:
            self.world.happened("seek failed", str(error))

    def _add_lane(self) -> None:
        """A topic has one more lane. The sidecar hears of it later, when there may be records in it."""
        topic = self.rng.choice([*self.plan.lanes])
        if len(self.broker.storage.topics[topic]) < _MOST_LANES:
            log = self.broker.storage.add_lane(topic)
            self.world.happened("a lane was added", log.lane)
            self.world.loop.call_later(self.rng.uniform(0.0, 3.0), self._assign_added, log)

    def _assign_added(self, log: LaneLog) -> None:
        source = self.broker.source
        if log.owner is None and source is not None and source.opened and not source.dead:
            self.world.exercised("a lane comes later")
            source.assign(log)

    def _outage(self) -> None:
        if not self.handler.outage:
            self.handler.outage = True
            self.world.happened("outage")
            self.world.loop.call_later(self.rng.uniform(0.5, 15.0), self._recovers)

    def _recovers(self) -> None:
        self.handler.outage = False
        self.world.happened("recovers")

    def _operator(self) -> None:
        subscription = self._history.subscription
        if subscription is None:
            return
        subscription.status()
        if subscription.paused_because:
            subscription.resume()
        else:
            subscription.pause("an operator says so")
            self.world.exercised("pause")
            self.world.loop.call_later(self.rng.uniform(0.1, 5.0), self.resume)

    def resume(self) -> None:
        if self._history.subscription is not None:
            self._history.subscription.resume()

    def _burst(self) -> None:
        name = self.rng.choice(("poll fails", "commit fails", "dead letter fails", "park fails"))
        self.faults.force_until(name, self.world.now + self.rng.uniform(0.5, 10.0))

    def _retention(self) -> None:
        """Remove the oldest records that the sidecar has not read."""
        lane = self.rng.choice([log.lane for topic in self.plan.lanes for log in self.broker.storage.topics[topic]])
        reader, epoch = self.checker.reader(lane), self.checker.epochs.get(lane)
        if reader is not None and epoch is not None and reader.told:
            removed = reader.log.remove(self.rng.randrange(1, 4), max(reader.next, epoch.tracked))
            if removed:
                self.world.exercised("records are removed by retention")
                self.world.happened("removed", *removed)

    def _clock_jumps(self) -> None:
        """The time of day is set, or the lanes move to a machine with another one."""
        self.world.clock.set_ahead(self.rng.choice((0, -3_000, 3_000, -_DAY_MS, _DAY_MS)))
        self.world.exercised("the time of day jumps")
        self.world.happened("time of day", self.world.clock.ahead_ms)

    async def _redrive(self) -> None:
        """An operator redrives all dead letters."""
        if self.broker.storage.topics.get(self.plan.settings.dead_letter_topic):
            try:
                wall_ms = self.world.clock.wall_ms()
                async for step in redrive(Redriver(self.broker), self.plan.settings, wall_ms=wall_ms):
                    if step.skipped:
                        self.world.exercised("redrive leaves out what was redriven before")
            except BrokerError as error:
                self.world.happened("redrive failed", str(error))
