"""Promise 5: one slow record holds up nobody else."""

from sidecar.model.errors import OutOfRoom, TooLarge
from sidecar.model.records import Lane, Order, Outcome, Part
from sidecar.settings import Bytes, ParkingSettings, WindowSettings
from tests.promises.stage import Stage, batches_of, needs, numbered, promise, retry, values
from tests.promises.timing import leap, until
from tests.promises.worker import Batch


class OneSlowRecordHoldsUpNobodyElse:
    @promise
    async def test_the_lane_of_a_slow_record_goes_on_while_its_commit_waits(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, b"slow", *numbered(200))
        subscription = await stage.subscribe(topic)
        slow = await stage.worker(subscription, _unless_slow).next()
        other = stage.worker(subscription, Batch.ack)
        await until(lambda: len(other.batches) == 200)
        await stage.turn_around(subscription)
        assert stage.committed(topic) <= at[0]
        slow.ack()
        await stage.commits(topic, at[200] + 1)

    @promise
    async def test_the_status_names_the_record_that_the_commit_waits_for_and_who_has_it(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, b"slow", *numbered(20))
        subscription = await stage.subscribe(topic)
        slow = await stage.worker(subscription, _unless_slow, name="tortoise").next()
        other = stage.worker(subscription, Batch.ack)
        await until(lambda: len(other.batches) == 20)
        await leap(60.0)
        (lane,) = (lane for lane in subscription.status().lanes if lane.topic == topic)
        assert (lane.oldest_position, lane.oldest_with) == (at[0], "tortoise")
        assert lane.oldest >= 60.0
        assert (lane.settled_beyond, lane.in_flight_records) == (20, 1)
        (tortoise,) = (session for session in subscription.status().sessions if session.name == "tortoise")
        assert tortoise.oldest_lease >= 60.0
        slow.ack()
        await stage.commits(topic, at[20] + 1)
        (lane,) = (lane for lane in subscription.status().lanes if lane.topic == topic)
        assert (lane.oldest_position, lane.oldest, lane.oldest_with, lane.would_be_replayed) == (-1, 0.0, "", 0)

    @promise
    async def test_the_window_bounds_how_many_records_go_past_a_slow_one(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, b"slow", *numbered(100))
        subscription = await stage.subscribe(topic, window=WindowSettings(records=20))
        slow = await stage.worker(subscription, _unless_slow).next()
        other = stage.worker(subscription, Batch.ack)
        await until(lambda: len(other.batches) == 19)
        await stage.turn_around(subscription)
        assert len(other.batches) == 19
        slow.ack()
        await stage.commits(topic, at[100] + 1)

    @promise
    async def test_the_window_bounds_the_bytes_that_go_past_a_slow_record(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, b"slow", *[bytes(1000)] * 50)
        subscription = await stage.subscribe(topic, window=WindowSettings(bytes=Bytes(10_500)))
        slow = await stage.worker(subscription, _unless_slow).next()
        other = stage.worker(subscription, Batch.ack)
        await until(lambda: len(other.batches) == 10)
        await stage.turn_around(subscription)
        assert len(other.batches) == 10
        slow.ack()
        await stage.commits(topic, at[50] + 1)

    @promise
    @needs("positions_count_records")
    async def test_the_window_bounds_the_span_of_positions_past_a_slow_record(self, stage: Stage) -> None:
        topic = await stage.topic()
        at = await stage.publish(topic, b"slow", *numbered(100))
        subscription = await stage.subscribe(topic, window=WindowSettings(span=15))
        slow = await stage.worker(subscription, _unless_slow).next()
        within = [position for position in at[1:] if position < at[0] + 15]
        other = stage.worker(subscription, Batch.ack)
        await until(lambda: len(other.batches) == len(within))
        await stage.turn_around(subscription)
        assert len(other.batches) == len(within)
        slow.ack()
        await stage.commits(topic, at[100] + 1)

    @promise
    async def test_a_full_window_holds_up_no_other_lane(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        await stage.publish(topic, b"slow", *numbered(50))
        subscription = await stage.subscribe(topic, window=WindowSettings(records=5))
        slow = await stage.worker(subscription, _unless_slow).next()
        other = stage.worker(subscription, Batch.ack)
        await until(lambda: len(other.batches) == 4)
        (*_, end) = await stage.publish(topic, *numbered(50, "other"), lane=1)
        await stage.commits(topic, end + 1, lane=1)
        assert slow.values == [b"slow"]
        held = {lane.lane: lane.held_by for lane in subscription.status().lanes if lane.topic == topic}
        assert "window" in held[0]
        assert held[1] == ""

    @promise
    async def test_a_slow_key_holds_up_no_other_key(self, stage: Stage) -> None:
        topic = await stage.topic()
        keys: list[bytes | None] = [b"slow", b"slow", *([b"a", b"b"] * 20)]
        await stage.publish(topic, b"slow", b"waits", *numbered(40), keys=keys)
        subscription = await stage.subscribe(topic, order=Order.KEY)
        slow = await stage.worker(subscription, _unless_slow).next()
        other = stage.worker(subscription, Batch.ack)
        await until(lambda: len(other.batches) == 40)
        await stage.turn_around(subscription)
        assert b"waits" not in values(other.batches)
        slow.ack()
        await until(lambda: b"waits" in values(other.batches))

    @promise
    async def test_a_slow_lane_holds_up_no_other_lane(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=3)
        await stage.publish(topic, b"slow", b"waits")
        ends = [(await stage.publish(topic, *numbered(20), lane=lane))[-1] + 1 for lane in (1, 2)]
        subscription = await stage.subscribe(topic, order=Order.LANE)
        holders = stage.worker(subscription, lambda b: None if b.values == [b"slow"] else b.ack(), credit=2)
        for lane, end in zip((1, 2), ends, strict=True):
            await stage.commits(topic, end, lane)
        assert b"waits" not in values(holders.batches)

    @promise
    async def test_a_retry_of_an_hour_at_a_thousand_records_stalls_nothing_and_comes_back_when_due(
        self, stage: Stage
    ) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, batch=batches_of(50), window=WindowSettings(records=200))
        await stage.turn_around(subscription)
        at = await stage.publish(topic, *[b"later", b"now"] * 1000)

        def handler(batch: Batch) -> None:
            later = [index for index, value in enumerate(batch.values) if value == b"later"]
            batch.settle(Outcome.ACK, [Part(index, 1, Outcome.NACK, retry_after=3600.0) for index in later])

        worker = stage.worker(subscription, handler, credit=2)
        # Far more wait than a window holds, and yet the lane comes to its end.
        await stage.commits(topic, at[-1] + 1)
        assert subscription.counters.parked == 1000
        worker.forget()
        worker.handler = Batch.ack
        await leap(3500.0)
        await stage.turn_around(subscription)
        assert not worker.batches
        await leap(101.0)
        await until(lambda: not stage.audit.unsettled(topic))
        # They come together, as they would have without the retry topic.
        assert len(worker.batches) < 100
        again = sorted(spot for batch in worker.batches for spot in batch.spots)
        assert again == [(Lane(topic, 0), position) for position in at[::2]]

    @promise
    async def test_a_parked_record_comes_back_as_it_was(self, stage: Stage) -> None:
        topic = await stage.topic(lanes=2)
        subscription = await stage.subscribe(topic)
        await stage.turn_around(subscription)
        await stage.publish(topic, b"value", lane=1, keys=[b"key"])
        worker = stage.worker(subscription)
        first = await worker.next()
        first.nack(retry_after=100.0)
        await until(lambda: subscription.counters.unparked)
        await leap(100.0)
        again = await worker.next()
        assert (again.delivery.topic, again.delivery.lanes) == (topic, (1,))
        assert again.records == first.records
        # A crash could have replayed it from its lane, too.
        assert (again.attempt, again.is_doubtful) == (2, True)

    @promise
    async def test_attempts_go_on_counting_across_the_retry_topic(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, retry=retry(attempts=4))
        await stage.turn_around(subscription)
        (at,) = await stage.publish(topic, b"value")
        worker = stage.worker(subscription)
        for attempt in (1, 2, 3, 4):
            batch = await worker.next()
            assert batch.attempt == attempt
            # The handler works for others: this is not an outage.
            await stage.turn_around(subscription)
            batch.nack(retry_after=100.0)
            if attempt < 4:
                await until(lambda: subscription.counters.unparked == attempt)  # noqa: B023 - waited for here
                await leap(100.0)
        await until(lambda: subscription.counters.dead_lettered)
        assert stage.audit.dead == {(Lane(topic, 0), at)}

    @promise
    async def test_a_short_wait_does_not_queue_behind_a_long_one(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, window=WindowSettings(records=5))
        await stage.turn_around(subscription)
        waits = {b"long": 36_000.0, b"short": 40.0}
        at = await stage.publish(topic, *[b"long", b"now"] * 20, b"short")

        def handler(batch: Batch) -> None:
            wait = waits.get(batch.values[0])
            batch.nack(retry_after=wait) if wait else batch.ack()

        worker = stage.worker(subscription, handler)
        await stage.commits(topic, at[40] + 1)
        worker.handler = Batch.ack
        worker.forget()
        await leap(40.0)
        await until(lambda: worker.batches)
        assert worker.batches[0].values == [b"short"]

    @promise
    async def test_a_record_does_not_wait_for_another_that_is_due_later(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, batch=batches_of(3))
        await stage.turn_around(subscription)
        at = await stage.publish(topic, *[b"later"] * 3, *[b"sooner"] * 3)
        worker = stage.worker(subscription)
        # Not by so much that they would be in different lanes of the retry topic.
        for wait in (240.0, 140.0):
            (await worker.next()).nack(retry_after=wait)
        await stage.commits(topic, at[-1] + 1)
        # The next life gets all of them at once.
        subscription = await stage.crash(subscription)
        worker = stage.worker(subscription)
        await until(lambda: subscription.counters.unparked == 6)
        worker.handler = Batch.ack
        await leap(141.0)
        await until(lambda: len(values(worker.batches)) >= 3)
        assert values(worker.batches) == [b"sooner"] * 3

    @promise
    async def test_long_waits_are_parked_also_in_a_retry_topic_with_fewer_lanes_than_set(self, stage: Stage) -> None:
        topic = await stage.topic()
        settings = stage.settings(topic)
        await stage.broker.ensure_topic(settings.retry_topic, 1)
        subscription = await stage.start(settings)
        await stage.turn_around(subscription)
        at = await stage.publish(topic, b"later", b"now")
        worker = stage.worker(subscription, lambda b: b.nack(retry_after=3600.0) if b.values == [b"later"] else b.ack())
        await stage.commits(topic, at[-1] + 1)
        worker.handler = Batch.ack
        await until(lambda: subscription.counters.unparked)
        await leap(3600.0)
        await until(lambda: not stage.audit.unsettled(topic))

    @promise
    async def test_records_that_only_wait_are_parked_when_they_fill_the_window(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(
            topic, retry=retry(first=20.0, attempts=9), window=WindowSettings(records=10)
        )
        await stage.turn_around(subscription)
        at = await stage.publish(topic, *[b"fails", b"works"] * 9, *numbered(100))
        stage.worker(subscription, lambda b: b.nack() if b.values == [b"fails"] else b.ack())
        # 20 s are short enough to wait in memory, but not while they are all that the window holds.
        await stage.commits(topic, at[-1] + 1)
        assert subscription.counters.parked == 9

    @promise
    async def test_a_record_that_is_too_large_to_be_parked_waits_where_it_is(self, stage: Stage) -> None:
        """The retry topic needs room for what is written beside it."""
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, window=WindowSettings(records=5))
        await stage.turn_around(subscription)
        at = await stage.publish(topic, b"large", *numbered(20))
        stage.broker.publish_faults[subscription.settings.retry_topic] = TooLarge("more than the topic takes")
        worker = stage.worker(subscription, lambda b: b.nack(retry_after=3600.0) if b.values == [b"large"] else b.ack())
        await until(lambda: len(worker.batches) == 5)
        worker.handler = Batch.ack
        await leap(3600.0)
        await stage.commits(topic, at[-1] + 1)
        assert [batch.values for batch in worker.batches].count([b"large"]) == 2
        assert not subscription.status().trouble

    @promise
    async def test_a_dead_letter_topic_that_takes_nothing_keeps_no_record_from_being_parked(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic)
        await stage.turn_around(subscription)
        await stage.publish(topic, b"bad", b"slow")
        dead_letters = subscription.settings.dead_letter_topic
        stage.broker.publish_faults[dead_letters] = OutOfRoom("no more than that may be stored")
        stage.worker(subscription, lambda b: b.reject() if b.values == [b"bad"] else b.nack(retry_after=3600.0))
        await until(lambda: subscription.counters.parked == 1 and stage.broker.failed_publishes[dead_letters] > 0)

    @promise
    async def test_parking_can_be_switched_off(self, stage: Stage) -> None:
        topic = await stage.topic()
        subscription = await stage.subscribe(topic, parking=ParkingSettings(enabled=False))
        await stage.turn_around(subscription)
        at = await stage.publish(topic, *numbered(3))
        worker = stage.worker(subscription, lambda b: b.nack(retry_after=3600.0) if b.values == [b"0"] else b.ack())
        await until(lambda: len(worker.batches) == 3)
        await stage.turn_around(subscription)
        assert stage.committed(topic) <= at[0]
        worker.handler = Batch.ack
        await leap(3600.0)
        await stage.commits(topic, at[2] + 1)


def _unless_slow(batch: Batch) -> None:
    if batch.values != [b"slow"]:
        batch.ack()
