"""Promise 4: order as chosen."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Hashable

from sidecar.model.records import Lane, Order, Outcome, Part
from sidecar.settings import Exhausted
from tests.promises.audit import Audit, Spot
from tests.promises.stage import Stage, batches_of, numbered, promise, retry, values
from tests.promises.timing import hurry, leap, until
from tests.promises.worker import Batch, Worker


class OrderAsChosen:
    @promise
    async def test_without_an_order_a_lane_goes_on_past_what_is_out(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(5), keys=[b"key"] * 5)
        subscription = await stage.subscribe(topic)
        assert values(await stage.worker(subscription, credit=5).take(5)) == numbered(5)

    @promise
    async def test_records_of_a_key_wait_for_each_other_and_for_nobody_else(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(
            topic, b"a1", b"a2", b"b1", b"b2", b"none1", b"none2", keys=[b"a", b"a", b"b", b"b", None, None]
        )
        subscription = await stage.subscribe(topic, order=Order.KEY)
        worker = stage.worker(subscription, credit=10)
        a1, b1, *others = await worker.take(4)
        assert values([a1, b1, *others]) == [b"a1", b"b1", b"none1", b"none2"]
        await stage.turn_around(subscription)
        assert not worker.untaken
        b1.ack()
        assert (await worker.next()).values == [b"b2"]
        a1.ack()
        assert (await worker.next()).values == [b"a2"]

    @promise
    async def test_a_batch_may_hold_several_records_of_a_key_in_their_order(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, b"a1", b"b1", b"a2", b"a3", keys=[b"a", b"b", b"a", b"a"])
        subscription = await stage.subscribe(topic, order=Order.KEY, batch=batches_of(3))
        worker = stage.worker(subscription, credit=2)
        first = await worker.next()
        assert first.values == [b"a1", b"b1", b"a2"]
        first.ack()
        await stage.has_all(subscription, topic, 4)
        await leap(60.0)
        assert (await worker.next()).values == [b"a3"]

    @promise
    async def test_a_nacked_record_keeps_its_key_waiting_until_it_is_settled(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, order=Order.KEY, retry=retry(first=20.0))
        await stage.turn_around(subscription)
        await stage.publish(topic, b"a1", b"a2", b"b1", keys=[b"a", b"a", b"b"])
        worker = stage.worker(subscription, credit=10)
        a1, b1 = await worker.take(2)
        a1.nack()
        b1.ack()
        await leap(12.0)
        await stage.turn_around(subscription)
        assert not worker.untaken
        await leap(8.0)
        again = await worker.next()
        assert again.values == [b"a1"]
        await stage.turn_around(subscription)
        assert not worker.untaken
        again.ack()
        assert (await worker.next()).values == [b"a2"]

    @promise
    async def test_a_long_wait_is_not_parked_because_its_key_must_wait_too(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, order=Order.KEY)
        await stage.turn_around(subscription)
        await stage.publish(topic, b"a1", b"a2", b"b1", keys=[b"a", b"a", b"b"])
        worker = stage.worker(subscription, credit=10)
        a1, b1 = await worker.take(2)
        a1.nack(retry_after=3600.0)
        b1.ack()
        await leap(3000.0)
        await stage.turn_around(subscription)
        assert not worker.untaken
        await leap(600.0)
        again = await worker.next()
        assert (again.values, again.attempt) == ([b"a1"], 2)
        assert not subscription.counters.parked
        again.ack()
        assert (await worker.next()).values == [b"a2"]

    @promise
    async def test_one_batch_of_a_lane_at_a_time(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        for lane in range(2):
            await stage.publish(topic, *numbered(4, f"{lane}:"), lane=lane)
        subscription = await stage.subscribe(topic, order=Order.LANE, batch=batches_of(2))
        worker = stage.worker(subscription, credit=10)
        first, second = await worker.take(2)
        assert sorted(values([first, second])) == [b"0:0", b"0:1", b"1:0", b"1:1"]
        await stage.turn_around(subscription)
        assert not worker.untaken
        first.ack()
        assert (await worker.next()).values == [b"%d:2" % first.records[0].lane, b"%d:3" % first.records[0].lane]

    @promise
    async def test_a_batch_holds_one_lane_with_order_lane(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=3)
        for lane in range(3):
            await stage.publish(topic, *numbered(2), lane=lane)
        subscription = await stage.subscribe(topic, order=Order.LANE, batch=batches_of(2))
        batches = await stage.worker(subscription, credit=3).take(3)
        assert sorted(batch.delivery.lanes for batch in batches) == [(0,), (1,), (2,)]

    @promise
    async def test_a_poisoned_key_is_skipped(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, order=Order.KEY, retry=retry(attempts=2))
        await stage.turn_around(subscription)
        at = await stage.publish(topic, b"bad", b"good", b"other", keys=[b"a", b"a", b"b"])
        await stage.has_all(subscription, topic, 3)
        worker = stage.worker(subscription, lambda b: b.nack() if b.values == [b"bad"] else b.ack(), credit=3)
        async with hurry():
            await until(lambda: [b"good"] in [batch.values for batch in worker.batches])
            await stage.commits(topic, at[2] + 1)
        assert stage.audit.dead == {(Lane(topic, 0), at[0])}
        assert values(worker.batches).count(b"bad") == 2

    @promise
    async def test_a_poisoned_key_is_held_if_so_configured(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(
            topic, order=Order.KEY, retry=retry(attempts=2, max=10.0, exhausted=Exhausted.HOLD)
        )
        await stage.turn_around(subscription)
        at = await stage.publish(topic, b"bad", b"later", b"other", keys=[b"a", b"a", b"b"])
        handlers = {b"bad": Batch.nack, b"other": Batch.ack, b"later": Batch.ack}
        worker = stage.worker(subscription, lambda b: handlers[b.values[0]](b), credit=3)
        for _ in range(10):
            await leap(10.0)
            await stage.turn_around(subscription)
        assert set(values(worker.batches)) == {b"bad", b"other"}
        assert values(worker.batches).count(b"bad") > 5
        assert stage.committed(topic) <= at[0]
        assert not stage.audit.dead
        handlers[b"bad"] = Batch.ack
        async with hurry():
            await stage.commits(topic, at[2] + 1)
        assert worker.batches[-1].values == [b"later"]

    @promise
    async def test_a_poisoned_lane_is_held_if_so_configured(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        subscription = await stage.subscribe(
            topic, order=Order.LANE, retry=retry(attempts=2, max=10.0, exhausted=Exhausted.HOLD)
        )
        await stage.turn_around(subscription)
        await stage.publish(topic, b"bad", b"later", lane=0)
        (*_, end) = await stage.publish(topic, *numbered(5), lane=1)
        worker = stage.worker(subscription, lambda b: b.nack() if b.values == [b"bad"] else b.ack(), credit=3)
        await stage.commits(topic, end + 1, lane=1)
        for _ in range(5):
            await leap(10.0)
            await stage.turn_around(subscription)
        assert b"later" not in values(worker.batches)

    @promise
    async def test_a_restart_keeps_the_order(self, stage: Stage) -> None:
        topic = await stage.topic()
        await stage.publish(topic, *numbered(6), keys=[b"a", b"b"] * 3)
        subscription = await stage.subscribe(topic, order=Order.KEY)
        a, b = await stage.worker(subscription, credit=5).take(2)
        b.ack()
        await stage.turn_around(subscription)
        subscription = await stage.crash(subscription)
        worker = stage.worker(subscription, Batch.ack)
        await until(lambda: not stage.audit.unsettled(topic))
        seen = values(worker.batches)
        assert [value for value in seen if value in (b"0", b"2", b"4")] == [b"0", b"2", b"4"]
        assert [value for value in seen if value in (b"3", b"5")] == [b"3", b"5"]
        assert a.values == [b"0"]

    @promise
    async def test_redelivery_keeps_the_order_of_keys_whatever_happens(self, stage: Stage) -> None:
        await _whatever_happens(stage, Order.KEY, lambda lane, key: (lane, key))

    @promise
    async def test_redelivery_keeps_the_order_of_lanes_whatever_happens(self, stage: Stage) -> None:
        await _whatever_happens(stage, Order.LANE, lambda lane, key: lane)


async def _whatever_happens(stage: Stage, order: Order, name: Callable[[Lane, bytes], Hashable]) -> None:
    chance = random.Random(4)
    topic = await stage.topic(lanes=3)
    subscription = await stage.subscribe(
        topic, order=order, batch=batches_of(5), retry=retry(attempts=3, first=1.0, max=5.0)
    )
    await stage.turn_around(subscription)
    watch = OrderWatch(stage.audit)
    for lane in range(3):
        keys: list[bytes | None] = [b"%d" % chance.randrange(5) for _ in range(80)]
        positions = await stage.publish(topic, *numbered(80), lane=lane, keys=keys)
        for key, position in zip(keys, positions, strict=True):
            watch.published(name(Lane(topic, lane), key or b""), (Lane(topic, lane), position))

    def hire() -> None:
        def handler(batch: Batch) -> None:
            watch.delivered(batch)
            # Later, so that several are out at a time.
            asyncio.get_running_loop().call_later(chance.random(), settle, worker, batch)

        worker = stage.worker(subscription, handler, credit=2, lease=20.0)

    def settle(worker: Worker, batch: Batch) -> None:
        if worker.session.ended or batch.results:
            return
        dice, half = chance.random(), len(batch.records) // 2
        watch.returned(batch)
        if dice < 0.6:
            batch.ack()
        elif dice < 0.75:
            batch.nack()
        elif dice < 0.8:
            batch.release()
        elif dice < 0.85 and half:
            batch.settle(Outcome.NACK, [Part(0, half, Outcome.ACK)])
        elif dice < 0.9:
            batch.reject()
        elif dice < 0.95:
            for held in worker.batches:
                watch.returned(held)
            worker.die()
            hire()
        # Otherwise it is forgotten, and expires.

    for _ in range(5):
        hire()
    async with hurry():
        await until(lambda: not stage.audit.unsettled(topic))
    assert not watch.violations, watch.violations[:3]
    assert watch.deliveries > 50


class OrderWatch:
    """Sees every delivery: of each name, what goes out must be the first of what is left, in one batch at a time."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self.violations: list[str] = []
        self.deliveries = 0
        self._left: dict[Hashable, list[Spot]] = defaultdict(list)
        self._names: dict[Spot, Hashable] = {}
        self._out: dict[Hashable, Batch] = {}

    def published(self, name: Hashable, spot: Spot) -> None:
        self._left[name].append(spot)
        self._names[spot] = name

    def delivered(self, batch: Batch) -> None:
        self.deliveries += 1
        by_name: dict[Hashable, list[Spot]] = defaultdict(list)
        for spot in batch.spots:
            by_name[self._names[spot]].append(spot)
        for name, spots in by_name.items():
            if name in self._out:
                self.violations.append(f"{name} is out in two batches: {spots} and {self._out[name].spots}")
            self._out[name] = batch
            left = [spot for spot in self._left[name] if spot not in self._audit.acked | self._audit.dead]
            if left[: len(spots)] != spots:
                self.violations.append(f"{spots} went before {left[: len(spots)]}")

    def returned(self, batch: Batch) -> None:
        """Nothing of it is out any more, or will not be for long; what is not settled will come again."""
        self._out = {name: out for name, out in self._out.items() if out is not batch}
