"""Promise 4: order as chosen."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Hashable

from sidecar.model.records import Lane, Order, Outcome, Part
from sidecar.settings import Exhausted
from tests.promises.adjustable_time import advance, fast_forward, until
from tests.promises.audit import Audit, RecordId
from tests.promises.environment import Environment, batches_of, numbered, promise, retry, values
from tests.promises.worker import Batch, Worker


class OrderAsChosen:
    @promise
    async def test_without_an_order_a_lane_goes_on_past_what_is_out(self, env: Environment) -> None:
        _, _, subscription = await env.backlog(*numbered(5), keys=[b"key"] * 5)
        assert values(await env.worker(subscription, credit=5).take(5)) == numbered(5)

    @promise
    async def test_records_of_a_key_wait_for_each_other_and_for_nobody_else(self, env: Environment) -> None:
        topic = await env.topic()
        await env.publish(
            topic, b"a1", b"a2", b"b1", b"b2", b"none1", b"none2", keys=[b"a", b"a", b"b", b"b", None, None]
        )
        subscription = await env.subscribe(topic, order=Order.KEY)
        worker = env.worker(subscription, credit=10)
        a1, b1, *others = await worker.take(4)
        assert values([a1, b1, *others]) == [b"a1", b"b1", b"none1", b"none2"]
        await env.round_trip(subscription)
        assert not worker.unread
        b1.ack()
        assert (await worker.next()).values == [b"b2"]
        a1.ack()
        assert (await worker.next()).values == [b"a2"]

    @promise
    async def test_a_batch_may_hold_several_records_of_a_key_in_their_order(self, env: Environment) -> None:
        topic, _, subscription = await env.backlog(
            b"a1", b"b1", b"a2", b"a3", keys=[b"a", b"b", b"a", b"a"], order=Order.KEY, batch=batches_of(3)
        )
        worker = env.worker(subscription, credit=2)
        first = await worker.next()
        assert first.values == [b"a1", b"b1", b"a2"]
        first.ack()
        await env.wait_fetched(subscription, topic, 4)
        await advance(60.0)
        assert (await worker.next()).values == [b"a3"]

    @promise
    async def test_a_nacked_record_keeps_its_key_waiting_until_it_is_settled(self, env: Environment) -> None:
        topic, subscription = await env.consuming(order=Order.KEY, retry=retry(first=20.0))
        await env.publish(topic, b"a1", b"a2", b"b1", keys=[b"a", b"a", b"b"])
        worker = env.worker(subscription, credit=10)
        a1, b1 = await worker.take(2)
        a1.nack()
        b1.ack()
        await advance(12.0)
        await env.round_trip(subscription)
        assert not worker.unread
        await advance(8.0)
        again = await worker.next()
        assert again.values == [b"a1"]
        await env.round_trip(subscription)
        assert not worker.unread
        again.ack()
        assert (await worker.next()).values == [b"a2"]

    @promise
    async def test_a_long_wait_is_not_parked_because_its_key_must_wait_too(self, env: Environment) -> None:
        topic, subscription = await env.consuming(order=Order.KEY)
        await env.publish(topic, b"a1", b"a2", b"b1", keys=[b"a", b"a", b"b"])
        worker = env.worker(subscription, credit=10)
        a1, b1 = await worker.take(2)
        a1.nack(retry_after=3600.0)
        b1.ack()
        await advance(3000.0)
        await env.round_trip(subscription)
        assert not worker.unread
        await advance(600.0)
        again = await worker.next()
        assert (again.values, again.attempt) == ([b"a1"], 2)
        assert not subscription.counters.parked
        again.ack()
        assert (await worker.next()).values == [b"a2"]

    @promise
    async def test_one_batch_of_a_lane_at_a_time(self, env: Environment) -> None:
        topic = await env.topic(lanes=2)
        for lane in range(2):
            await env.publish(topic, *numbered(4, f"{lane}:"), lane=lane)
        subscription = await env.subscribe(topic, order=Order.LANE, batch=batches_of(2))
        worker = env.worker(subscription, credit=10)
        first, second = await worker.take(2)
        assert sorted(values([first, second])) == [b"0:0", b"0:1", b"1:0", b"1:1"]
        await env.round_trip(subscription)
        assert not worker.unread
        first.ack()
        assert (await worker.next()).values == [b"%d:2" % first.records[0].lane, b"%d:3" % first.records[0].lane]

    @promise
    async def test_a_batch_holds_one_lane_with_order_lane(self, env: Environment) -> None:
        topic = await env.topic(lanes=3)
        for lane in range(3):
            await env.publish(topic, *numbered(2), lane=lane)
        subscription = await env.subscribe(topic, order=Order.LANE, batch=batches_of(2))
        batches = await env.worker(subscription, credit=3).take(3)
        assert sorted(batch.delivery.lanes for batch in batches) == [(0,), (1,), (2,)]

    @promise
    async def test_a_poisoned_key_is_skipped(self, env: Environment) -> None:
        topic, subscription = await env.consuming(order=Order.KEY, retry=retry(attempts=2))
        positions = await env.publish(topic, b"bad", b"good", b"other", keys=[b"a", b"a", b"b"])
        await env.wait_fetched(subscription, topic, 3)
        worker = env.worker(subscription, lambda b: b.nack() if b.values == [b"bad"] else b.ack(), credit=3)
        async with fast_forward():
            await until(lambda: [b"good"] in [batch.values for batch in worker.batches])
            await env.wait_committed(topic, positions[2] + 1)
        assert env.audit.dead == {(Lane(topic, 0), positions[0])}
        assert values(worker.batches).count(b"bad") == 2

    @promise
    async def test_a_poisoned_key_is_held_if_so_configured(self, env: Environment) -> None:
        topic, subscription = await env.consuming(
            order=Order.KEY, retry=retry(attempts=2, max=10.0, exhausted=Exhausted.HOLD)
        )
        positions = await env.publish(topic, b"bad", b"later", b"other", keys=[b"a", b"a", b"b"])
        handlers = {b"bad": Batch.nack, b"other": Batch.ack, b"later": Batch.ack}
        worker = env.worker(subscription, lambda b: handlers[b.values[0]](b), credit=3)
        for _ in range(10):
            await advance(10.0)
            await env.round_trip(subscription)
        assert set(values(worker.batches)) == {b"bad", b"other"}
        assert values(worker.batches).count(b"bad") > 5
        assert env.committed(topic) <= positions[0]
        assert not env.audit.dead
        handlers[b"bad"] = Batch.ack
        async with fast_forward():
            await env.wait_committed(topic, positions[2] + 1)
        assert worker.batches[-1].values == [b"later"]

    @promise
    async def test_a_poisoned_lane_is_held_if_so_configured(self, env: Environment) -> None:
        topic, subscription = await env.consuming(
            lanes=2, order=Order.LANE, retry=retry(attempts=2, max=10.0, exhausted=Exhausted.HOLD)
        )
        await env.publish(topic, b"bad", b"later", lane=0)
        (*_, end) = await env.publish(topic, *numbered(5), lane=1)
        worker = env.worker(subscription, lambda b: b.nack() if b.values == [b"bad"] else b.ack(), credit=3)
        await env.wait_committed(topic, end + 1, lane=1)
        for _ in range(5):
            await advance(10.0)
            await env.round_trip(subscription)
        assert b"later" not in values(worker.batches)

    @promise
    async def test_a_restart_keeps_the_order(self, env: Environment) -> None:
        topic, _, subscription = await env.backlog(*numbered(6), keys=[b"a", b"b"] * 3, order=Order.KEY)
        a, b = await env.worker(subscription, credit=5).take(2)
        b.ack()
        await env.round_trip(subscription)
        subscription = await env.crash(subscription)
        worker = env.worker(subscription, Batch.ack)
        await until(lambda: not env.audit.unsettled(topic))
        seen = values(worker.batches)
        assert [value for value in seen if value in (b"0", b"2", b"4")] == [b"0", b"2", b"4"]
        assert [value for value in seen if value in (b"3", b"5")] == [b"3", b"5"]
        assert a.values == [b"0"]

    @promise
    async def test_redelivery_keeps_the_order_of_keys_whatever_happens(self, env: Environment) -> None:
        await _keeps_order_whatever_happens(env, Order.KEY, lambda lane, key: (lane, key))

    @promise
    async def test_redelivery_keeps_the_order_of_lanes_whatever_happens(self, env: Environment) -> None:
        await _keeps_order_whatever_happens(env, Order.LANE, lambda lane, key: lane)


async def _keeps_order_whatever_happens(
    env: Environment, order: Order, name: Callable[[Lane, bytes], Hashable]
) -> None:
    chance = random.Random(4)
    topic, subscription = await env.consuming(
        lanes=3, order=order, batch=batches_of(5), retry=retry(attempts=3, first=1.0, max=5.0)
    )
    watch = OrderWatch(env.audit)
    for lane in range(3):
        keys: list[bytes | None] = [b"%d" % chance.randrange(5) for _ in range(80)]
        positions = await env.publish(topic, *numbered(80), lane=lane, keys=keys)
        for key, position in zip(keys, positions, strict=True):
            watch.published(name(Lane(topic, lane), key or b""), (Lane(topic, lane), position))

    def hire() -> None:
        def handler(batch: Batch) -> None:
            watch.delivered(batch)
            # Later, so that several are in flight at a time.
            asyncio.get_running_loop().call_later(chance.random(), settle, worker, batch)

        worker = env.worker(subscription, handler, credit=2, lease=20.0)

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
        # Otherwise it is not settled, and expires.

    for _ in range(5):
        hire()
    async with fast_forward():
        await until(lambda: not env.audit.unsettled(topic))
    assert not watch.violations, watch.violations[:3]
    assert watch.deliveries > 50


class OrderWatch:
    """Checks every delivery: for each unit of order, the first unsettled records go, in one batch at a time."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self.violations: list[str] = []
        self.deliveries = 0
        self._left: dict[Hashable, list[RecordId]] = defaultdict(list)
        self._names: dict[RecordId, Hashable] = {}
        self._out: dict[Hashable, Batch] = {}

    def published(self, name: Hashable, record_id: RecordId) -> None:
        self._left[name].append(record_id)
        self._names[record_id] = name

    def delivered(self, batch: Batch) -> None:
        self.deliveries += 1
        by_name: dict[Hashable, list[RecordId]] = defaultdict(list)
        for record_id in batch.record_ids:
            by_name[self._names[record_id]].append(record_id)
        for name, record_ids in by_name.items():
            if name in self._out:
                self.violations.append(f"{name} is out in two batches: {record_ids} and {self._out[name].record_ids}")
            self._out[name] = batch
            left = [
                record_id for record_id in self._left[name] if record_id not in self._audit.acked | self._audit.dead
            ]
            if left[: len(record_ids)] != record_ids:
                self.violations.append(f"{record_ids} went before {left[: len(record_ids)]}")

    def returned(self, batch: Batch) -> None:
        """The batch is no longer in flight; what is not settled comes again."""
        self._out = {name: out for name, out in self._out.items() if out is not batch}
