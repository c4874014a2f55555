"""A trace goes through: `traceparent` and `tracestate` reach every handler unchanged, whatever way a record takes."""

import asyncio

from sidecar.model.records import Header, Message
from sidecar.subscription import dead_letters
from tests.promises.adjustable_time import advance, until
from tests.promises.environment import Environment, promise

PARENT = Header("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
STATE = Header("tracestate", b"vendor=t61rcWkgMzE,other=00f067aa0ba902b7")
OWN = Header("kind", b"order")
HEADERS = (OWN, PARENT, STATE)


class TraceGoesThrough:
    @promise
    async def test_a_trace_reaches_the_handler_and_goes_on_with_what_it_publishes(self, env: Environment) -> None:
        topic, further = await env.topic(), await env.topic()
        await env.broker.publish(topic, [Message(b"key", b"value", HEADERS, lane=0)])
        subscription = await env.subscribe(topic, further)
        worker = env.worker(subscription, credit=2)
        first = await worker.next()
        assert first.records[0].headers == HEADERS
        await env.broker.publish(further, [Message(None, b"reply", first.records[0].headers, lane=0)])
        reply = await worker.next()
        assert (reply.values, reply.records[0].headers) == ([b"reply"], HEADERS)

    @promise
    async def test_a_trace_outlasts_retries_and_parking(self, env: Environment) -> None:
        topic, subscription = await env.consuming()
        await env.broker.publish(topic, [Message(b"key", b"value", HEADERS, lane=0)])
        worker = env.worker(subscription)
        (await worker.next()).nack(retry_after=1.0)
        await advance(1.0)
        again = await worker.next()
        assert (again.attempt, again.records[0].headers) == (2, HEADERS)
        again.nack(retry_after=100.0)
        await until(lambda: subscription.counters.unparked)
        await advance(100.0)
        parked = await worker.next()
        assert (parked.attempt, parked.records[0].headers) == (3, HEADERS)

    @promise
    async def test_a_trace_is_in_the_dead_letter_and_comes_back_with_a_redrive(self, env: Environment) -> None:
        topic, subscription = await env.consuming()
        await env.broker.publish(topic, [Message(b"key", b"value", HEADERS, lane=0)])
        worker = env.worker(subscription)
        (await worker.next()).reject("no such account")
        await until(lambda: subscription.counters.dead_lettered)
        (letter,) = await env.dead_letters(subscription)
        assert letter.record.headers == HEADERS
        (newest,), _ = await dead_letters.newest(env.broker, subscription.settings, limit=10)
        assert newest == letter
        wall_ms = subscription.clock.wall_ms()
        (step,) = [step async for step in dead_letters.redrive(env.broker, subscription.settings, wall_ms=wall_ms)]
        assert step.ids == [letter.id]
        async with asyncio.timeout(20):
            back = await worker.next()
        assert (back.values, back.records[0].headers) == ([b"value"], HEADERS)
