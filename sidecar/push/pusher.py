"""A session of the subscription within the sidecar: one call for each batch, and what follows from its verdict.

Batches, order, retries, budgets and outages are the subscription's, as for any worker.
"""

import asyncio
import random
import time
from dataclasses import dataclass

from sidecar.core.failures.backoff import Backoff
from sidecar.model.errors import TooLarge
from sidecar.model.limits import kept_reason
from sidecar.model.records import ClientInfo, Credit, Delivery, Notice, Outcome, Settlement
from sidecar.model.version import VERSION
from sidecar.observability.logs import Log
from sidecar.observability.tracing import Tracer
from sidecar.push.app import App
from sidecar.push.gate import Gate
from sidecar.push.replies import ReplyPublisher
from sidecar.push.verdict import Died, NotReached, Settled, TimedOut, Verdict
from sidecar.subscription.session import Consumer
from sidecar.subscription.subscription import Subscription

log = Log("push")


@dataclass(eq=False, slots=True)
class _Call:
    delivery: Delivery
    #: no other call was under way while this one was
    alone: bool


class Pusher(Consumer):
    """The worker of a subscription with `push`. `start` it once the subscription runs, and `close` it after the drain,
    which it takes part in like any worker."""

    def __init__(self, subscription: Subscription, app: App, tracer: Tracer | None) -> None:
        self._subscription = subscription
        self._app = app
        self._tracer = tracer
        self._settings = settings = subscription.settings.push
        self._calls: set[_Call] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        rng, troubles = random.Random(), subscription.troubles
        outage = subscription.settings.outage
        backoff = Backoff(outage.probe_first, 2.0, outage.probe_max, 0.2, rng)
        self._gate = Gate(settings.concurrency, self._grant, troubles, backoff)
        self._replies = ReplyPublisher(subscription.broker, settings.reply_topic, troubles, rng)

    def start(self) -> None:
        """Take batches from now on. Raises `Stopping` while the subscription drains."""
        app = self._app
        app.open()
        client = ClientInfo("push", app.protocol, VERSION, name=f"push to {app.address}")
        self._session = self._subscription.connect(
            self,
            client=client,
            credit=Credit(self._settings.concurrency),
            max_message_bytes=app.max_batch_bytes,
            lease=None,
            batch_records=app.batch_records,
        )

    async def close(self) -> None:
        """Cut off the calls that the drain has left: their records are delivered again. Never raises."""
        self._gate.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._app.close()

    # As the consumer of its session

    def deliver(self, delivery: Delivery) -> None:
        for other in self._calls:
            other.alone = False
        call = _Call(delivery, alone=not self._calls)
        self._calls.add(call)
        self._count_calls()
        task = asyncio.create_task(self._run(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def notify(self, notice: Notice) -> None:
        """Nothing: whether it gets batches is up to the subscription, and what it holds it settles."""

    # One call

    async def _run(self, call: _Call) -> None:
        try:
            # Its time starts now. That of the call ends earlier: see config.checks.
            self._subscription.written([call.delivery.lease])
            await self._apply(call, await self._handle(call))
        except Exception as error:
            log.bug("unhandled exception in a call", error, subscription=self._subscription.settings.name)
            self._settle(call, Settled("bug", Outcome.NACK, f"internal error: {error!r}", possibly_processed=True))
        finally:
            self._calls.discard(call)
            self._count_calls()

    async def _handle(self, call: _Call) -> Verdict:
        meters, began = self._subscription.meters, time.perf_counter()
        span = self._tracer.calling(call.delivery.lease, self._app.address) if self._tracer is not None else None
        status = "cancelled"
        try:
            verdict = await self._app.handle(call.delivery, span.traceparent if span is not None else "")
            status = verdict.status
            return verdict
        except Exception:
            status = "bug"
            raise
        finally:
            meters.push_calls[status] = meters.push_calls.get(status, 0) + 1
            meters.push_seconds.observe(time.perf_counter() - began)
            if span is not None:
                span.end(status)

    async def _apply(self, call: _Call, verdict: Verdict) -> None:
        match verdict:
            case NotReached():
                # First, so that the batch does not come back at once.
                self._gate.not_reached(verdict.text)
                self._settle(call, Settled(verdict.status, Outcome.RELEASE))
            case Died():
                self._gate.reached()
                self._subscription.abandon(call.delivery.lease, alone=call.alone)
            case TimedOut():
                self._gate.reached()
                # The call may still run. While its lease lasts, its slot is taken, and its key or lane waits.
                await asyncio.sleep(self._settings.settle_after)
                self._settle(call, Settled("", Outcome.NACK, verdict.reason, possibly_processed=True))
            case Settled():
                self._gate.reached()
                if verdict.reply is None:
                    self._settle(call, verdict)
                else:
                    await self._publish(call, verdict)

    async def _publish(self, call: _Call, verdict: Settled) -> None:
        assert verdict.reply is not None
        leases, lease = self._subscription.tracker.leases, call.delivery.lease
        try:
            if await self._replies.publish(verdict.reply, lambda: leases.get(lease) is not None):
                self._settle(call, verdict)
        except TooLarge as error:
            reason = kept_reason(f"the reply cannot be published: {error}")
            self._settle(call, Settled("", Outcome.NACK, reason, possibly_processed=True))

    def _settle(self, call: _Call, verdict: Settled) -> None:
        settlement = Settlement(
            call.delivery.lease,
            verdict.outcome,
            verdict.reason,
            verdict.retry_after,
            verdict.parts,
            verdict.possibly_processed,
        )
        # Other calls may be selected for its room at once, so it must not count as under way any more.
        self._calls.discard(call)
        if verdict.outcome is Outcome.OVERLOADED and verdict.retry_after:
            self._gate.wait(verdict.retry_after)
        self._subscription.settle([settlement])

    def _grant(self, calls: int) -> None:
        self._subscription.meters.push_waiting = self._gate.waiting
        self._session.grant(Credit(calls))

    def _count_calls(self) -> None:
        self._subscription.meters.push_in_flight = len(self._calls)
