"""Promise 5: one slow record holds up nobody else."""

from collections.abc import Callable

from sidecar.model.errors import OutOfRoom, TooLarge
from sidecar.model.records import Lane, Order, Outcome, Part
from sidecar.settings import Bytes, ParkingSettings, WindowSettings
from tests.promises.adjustable_time import advance, until
from tests.promises.environment import Environment, batches_of, needs, numbered, promise, retry, values
from tests.promises.worker import Batch


class SlowRecordHoldsUpNobody:
    @promise
    async def test_the_lane_of_a_slow_record_goes_on_while_its_commit_waits(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(b"slow", *numbered(200))
        slow = await env.worker(subscription, _unless_slow).next()
        other = env.worker(subscription, Batch.ack)
        await until(lambda: len(other.batches) == 200)
        await env.round_trip(subscription)
        assert env.committed(topic) <= positions[0]
        slow.ack()
        await env.wait_committed(topic, positions[200] + 1)

    @promise
    async def test_the_status_names_the_record_that_the_commit_waits_for_and_who_has_it(self, env: Environment) -> None:
        topic, positions, subscription = await env.backlog(b"slow", *numbered(20))
        slow = await env.worker(subscription, _unless_slow, name="tortoise").next()
        other = env.worker(subscription, Batch.ack)
        await until(lambda: len(other.batches) == 20)
        await advance(60.0)
        (lane,) = (lane for lane in subscription.status().lanes if lane.topic == topic)
        assert (lane.oldest_position, lane.oldest_with) == (positions[0], "tortoise")
        assert lane.oldest >= 60.0
        assert (lane.settled_beyond, lane.in_flight_records) == (20, 1)
        (tortoise,) = (session for session in subscription.status().sessions if session.name == "tortoise")
        assert tortoise.oldest_lease >= 60.0
        slow.ack()
        await env.wait_committed(topic, positions[20] + 1)
        (lane,) = (lane for lane in subscription.status().lanes if lane.topic == topic)
        assert (lane.oldest_position, lane.oldest, lane.oldest_with, lane.would_be_replayed) == (-1, 0.0, "", 0)

    @promise
    async def test_the_window_bounds_how_many_records_go_past_a_slow_one(self, env: Environment) -> None:
        await _window_bounds(env, WindowSettings(records=20), numbered(100), lambda positions: 19)

    @promise
    async def test_the_window_bounds_the_bytes_that_go_past_a_slow_record(self, env: Environment) -> None:
        await _window_bounds(env, WindowSettings(bytes=Bytes(10_500)), [bytes(1000)] * 50, lambda positions: 10)

    @promise
    @needs("positions_count_records")
    async def test_the_window_bounds_the_span_of_positions_past_a_slow_record(self, env: Environment) -> None:
        def within(positions: list[int]) -> int:
            return sum(position < positions[0] + 15 for position in positions[1:])

        await _window_bounds(env, WindowSettings(span=15), numbered(100), within)

    @promise
    async def test_a_full_window_holds_up_no_other_lane(self, env: Environment) -> None:
        topic = await env.topic(lanes=2)
        await env.publish(topic, b"slow", *numbered(50))
        subscription = await env.subscribe(topic, window=WindowSettings(records=5))
        slow = await env.worker(subscription, _unless_slow).next()
        other = env.worker(subscription, Batch.ack)
        await until(lambda: len(other.batches) == 4)
        (*_, end) = await env.publish(topic, *numbered(50, "other"), lane=1)
        await env.wait_committed(topic, end + 1, lane=1)
        assert slow.values == [b"slow"]
        held = {lane.lane: lane.held_by for lane in subscription.status().lanes if lane.topic == topic}
        assert "window" in held[0]
        assert held[1] == ""

    @promise
    async def test_a_slow_key_holds_up_no_other_key(self, env: Environment) -> None:
        topic = await env.topic()
        keys: list[bytes | None] = [b"slow", b"slow", *([b"a", b"b"] * 20)]
        await env.publish(topic, b"slow", b"waits", *numbered(40), keys=keys)
        subscription = await env.subscribe(topic, order=Order.KEY)
        slow = await env.worker(subscription, _unless_slow).next()
        other = env.worker(subscription, Batch.ack)
        await until(lambda: len(other.batches) == 40)
        await env.round_trip(subscription)
        assert b"waits" not in values(other.batches)
        slow.ack()
        await until(lambda: b"waits" in values(other.batches))

    @promise
    async def test_a_slow_lane_holds_up_no_other_lane(self, env: Environment) -> None:
        topic = await env.topic(lanes=3)
        await env.publish(topic, b"slow", b"waits")
        ends = [(await env.publish(topic, *numbered(20), lane=lane))[-1] + 1 for lane in (1, 2)]
        subscription = await env.subscribe(topic, order=Order.LANE)
        holders = env.worker(subscription, lambda b: None if b.values == [b"slow"] else b.ack(), credit=2)
        for lane, end in zip((1, 2), ends, strict=True):
            await env.wait_committed(topic, end, lane)
        assert b"waits" not in values(holders.batches)

    @promise
    async def test_a_retry_of_an_hour_at_a_thousand_records_stalls_nothing_and_comes_back_when_due(
        self, env: Environment
    ) -> None:
        topic, subscription = await env.consuming(batch=batches_of(50), window=WindowSettings(records=200))
        positions = await env.publish(topic, *[b"later", b"now"] * 1000)

        def handler(batch: Batch) -> None:
            later = [index for index, value in enumerate(batch.values) if value == b"later"]
            batch.settle(Outcome.ACK, [Part(index, 1, Outcome.NACK, retry_after=3600.0) for index in later])

        worker = env.worker(subscription, handler, credit=2)
        # Far more records wait than a window holds, and yet the lane is committed to its end.
        await env.wait_committed(topic, positions[-1] + 1)
        assert subscription.counters.parked == 1000
        worker.forget()
        worker.handler = Batch.ack
        await advance(3500.0)
        await env.round_trip(subscription)
        assert not worker.batches
        await advance(101.0)
        await until(lambda: not env.audit.unsettled(topic))
        # They come in batches, as they would have without the retry topic.
        assert len(worker.batches) < 100
        again = sorted(record_id for batch in worker.batches for record_id in batch.record_ids)
        assert again == [(Lane(topic, 0), position) for position in positions[::2]]

    @promise
    async def test_a_parked_record_comes_back_as_it_was(self, env: Environment) -> None:
        topic, subscription = await env.consuming(lanes=2)
        await env.publish(topic, b"value", lane=1, keys=[b"key"])
        worker = env.worker(subscription)
        first = await worker.next()
        first.nack(retry_after=100.0)
        await until(lambda: subscription.counters.unparked)
        await advance(100.0)
        again = await worker.next()
        assert (again.delivery.topic, again.delivery.lanes) == (topic, (1,))
        assert again.records == first.records
        # A crash could have replayed it from its lane as well.
        assert (again.attempt, again.possibly_processed) == (2, True)

    @promise
    async def test_attempts_go_on_counting_across_the_retry_topic(self, env: Environment) -> None:
        topic, subscription = await env.consuming(retry=retry(attempts=4))
        (position,) = await env.publish(topic, b"value")
        worker = env.worker(subscription)
        for attempt in (1, 2, 3, 4):
            batch = await worker.next()
            assert batch.attempt == attempt
            # The handler works for others: this is not an outage.
            await env.round_trip(subscription)
            batch.nack(retry_after=100.0)
            if attempt < 4:
                await until(lambda: subscription.counters.unparked == attempt)  # noqa: B023 - waited for here
                await advance(100.0)
        await until(lambda: subscription.counters.dead_lettered)
        assert env.audit.dead == {(Lane(topic, 0), position)}

    @promise
    @needs("finds_left_topics")
    async def test_what_is_parked_in_an_earlier_retry_topic_is_told_and_comes_when_that_is_set_again(
        self, env: Environment
    ) -> None:
        topic, subscription = await env.consuming()
        positions = await env.publish(topic, b"one", b"two")
        worker = env.worker(subscription)
        for _ in positions:
            (await worker.next()).nack(retry_after=100.0)
        await env.wait_committed(topic, positions[-1] + 1)
        before, elsewhere = subscription.settings.retry_topic, ParkingSettings(topic="{group}.elsewhere")
        subscription = await env.restart(subscription, parking=elsewhere)
        await until(lambda: subscription.troubles.get("left topics"), "the status tells")
        assert f"2 in {before}" in subscription.troubles.get("left topics")
        subscription = await env.restart(subscription, parking=ParkingSettings(enabled=False))
        worker = env.worker(subscription, Batch.ack)
        await until(lambda: subscription.counters.unparked == 2)
        await advance(101.0)
        await until(lambda: not env.audit.unsettled(topic))
        subscription = await env.restart(subscription, parking=elsewhere)
        await env.round_trip(subscription)
        await until(lambda: env.source(subscription).calls.count("left_behind"), "it has looked")
        assert not subscription.troubles.get("left topics")

    @promise
    async def test_a_short_wait_does_not_queue_behind_a_long_one(self, env: Environment) -> None:
        topic, subscription = await env.consuming(window=WindowSettings(records=5))
        waits = {b"long": 36_000.0, b"short": 40.0}
        positions = await env.publish(topic, *[b"long", b"now"] * 20, b"short")

        def handler(batch: Batch) -> None:
            wait = waits.get(batch.values[0])
            batch.nack(retry_after=wait) if wait else batch.ack()

        worker = env.worker(subscription, handler)
        await env.wait_committed(topic, positions[40] + 1)
        worker.handler = Batch.ack
        worker.forget()
        await advance(40.0)
        await until(lambda: worker.batches)
        assert worker.batches[0].values == [b"short"]

    @promise
    async def test_a_record_does_not_wait_for_another_that_is_due_later(self, env: Environment) -> None:
        topic, subscription = await env.consuming(batch=batches_of(3))
        positions = await env.publish(topic, *[b"later"] * 3, *[b"sooner"] * 3)
        worker = env.worker(subscription)
        # Close enough to share a lane of the retry topic.
        for wait in (240.0, 140.0):
            (await worker.next()).nack(retry_after=wait)
        await env.wait_committed(topic, positions[-1] + 1)
        # The next process gets all of them at once.
        subscription = await env.crash(subscription)
        worker = env.worker(subscription)
        await until(lambda: subscription.counters.unparked == 6)
        worker.handler = Batch.ack
        await advance(141.0)
        await until(lambda: len(values(worker.batches)) >= 3)
        assert values(worker.batches) == [b"sooner"] * 3

    @promise
    async def test_long_waits_are_parked_also_in_a_retry_topic_with_fewer_lanes_than_set(
        self, env: Environment
    ) -> None:
        topic = await env.topic()
        settings = env.settings(topic)
        await env.broker.ensure_topic(settings.retry_topic, 1)
        subscription = await env.start(settings)
        await env.round_trip(subscription)
        positions = await env.publish(topic, b"later", b"now")
        worker = env.worker(subscription, lambda b: b.nack(retry_after=3600.0) if b.values == [b"later"] else b.ack())
        await env.wait_committed(topic, positions[-1] + 1)
        worker.handler = Batch.ack
        await until(lambda: subscription.counters.unparked)
        await advance(3600.0)
        await until(lambda: not env.audit.unsettled(topic))

    @promise
    async def test_records_that_only_wait_are_parked_when_they_fill_the_window(self, env: Environment) -> None:
        topic, subscription = await env.consuming(
            retry=retry(first=20.0, attempts=9), window=WindowSettings(records=10)
        )
        positions = await env.publish(topic, *[b"fails", b"works"] * 9, *numbered(100))
        env.worker(subscription, lambda b: b.nack() if b.values == [b"fails"] else b.ack())
        # 20 s are short enough to wait in memory, but not when the window holds nothing else.
        await env.wait_committed(topic, positions[-1] + 1)
        assert subscription.counters.parked == 9

    @promise
    async def test_a_record_that_is_too_large_to_be_parked_waits_where_it_is(self, env: Environment) -> None:
        """A parked record is larger: it carries headers."""
        topic, subscription = await env.consuming(window=WindowSettings(records=5))
        positions = await env.publish(topic, b"large", *numbered(20))
        env.broker.publish_faults[subscription.settings.retry_topic] = TooLarge("more than the topic takes")
        worker = env.worker(subscription, lambda b: b.nack(retry_after=3600.0) if b.values == [b"large"] else b.ack())
        await until(lambda: len(worker.batches) == 5)
        worker.handler = Batch.ack
        await advance(3600.0)
        await env.wait_committed(topic, positions[-1] + 1)
        assert [batch.values for batch in worker.batches].count([b"large"]) == 2
        assert not subscription.status().trouble

    @promise
    async def test_a_dead_letter_topic_that_takes_nothing_keeps_no_record_from_being_parked(
        self, env: Environment
    ) -> None:
        topic, subscription = await env.consuming()
        await env.publish(topic, b"bad", b"slow")
        dead_letters = subscription.settings.dead_letter_topic
        env.broker.publish_faults[dead_letters] = OutOfRoom("no more than that may be stored")
        env.worker(subscription, lambda b: b.reject() if b.values == [b"bad"] else b.nack(retry_after=3600.0))
        await until(lambda: subscription.counters.parked == 1 and env.broker.failed_publishes[dead_letters] > 0)

    @promise
    async def test_parking_can_be_switched_off(self, env: Environment) -> None:
        topic, subscription = await env.consuming(parking=ParkingSettings(enabled=False))
        positions = await env.publish(topic, *numbered(3))
        worker = env.worker(subscription, lambda b: b.nack(retry_after=3600.0) if b.values == [b"0"] else b.ack())
        await until(lambda: len(worker.batches) == 3)
        await env.round_trip(subscription)
        assert env.committed(topic) <= positions[0]
        worker.handler = Batch.ack
        await advance(3600.0)
        await env.wait_committed(topic, positions[2] + 1)


async def _window_bounds(
    env: Environment, window: WindowSettings, others: list[bytes], passes: Callable[[list[int]], int]
) -> None:
    """Behind a slow record, only so many others are delivered, which `passes` tells from all positions."""
    topic, positions, subscription = await env.backlog(b"slow", *others, window=window)
    slow = await env.worker(subscription, _unless_slow).next()
    other = env.worker(subscription, Batch.ack)
    await until(lambda: len(other.batches) == passes(positions))
    await env.round_trip(subscription)
    assert len(other.batches) == passes(positions)
    slow.ack()
    await env.wait_committed(topic, positions[-1] + 1)


def _unless_slow(batch: Batch) -> None:
    if batch.values != [b"slow"]:
        batch.ack()
