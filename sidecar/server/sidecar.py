"""The sidecar process: brokers, subscriptions, gRPC and HTTP, from start to drain."""

import asyncio
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Coroutine, Iterable
from http import HTTPStatus

from sidecar import brokers
from sidecar.brokers.connections import Connections
from sidecar.model.clock import Clock
from sidecar.model.errors import OfframpError, StartError
from sidecar.model.version import PROTOCOL, PROTOCOL_MINOR, VERSION
from sidecar.observability import logs, metrics, tracing
from sidecar.observability.logs import Log
from sidecar.observability.status import Status, SubscriptionState
from sidecar.push import factory as push
from sidecar.push.pusher import Pusher
from sidecar.ranges.subscription import RangeSubscription
from sidecar.server import event_loop, process
from sidecar.server.auth.caller import current
from sidecar.server.auth.credential_store import CredentialStore
from sidecar.server.grpc.admin_service import AdminService
from sidecar.server.grpc.consumer.service import ConsumerService
from sidecar.server.grpc.health_service import HealthService
from sidecar.server.grpc.listeners import NAMES, GrpcListeners, Services
from sidecar.server.grpc.log_service import LogService
from sidecar.server.grpc.publish_service import PublishService
from sidecar.server.http import HttpServer, Response, Route
from sidecar.server.status_page import StatusPage
from sidecar.server.subscriptions import BOOT_BYTES, AnySubscription, SubscriptionRegistry, lease_prefix
from sidecar.settings import Right, Settings, SubscriptionMode
from sidecar.subscription.subscription import Subscription

#: seconds to wait for brokers at the start; those that take longer are opened while the sidecar serves
_BROKER_OPEN_TIMEOUT = 1.0
#: seconds that a thread may hold the interpreter while another waits for it (`sys.setswitchinterval`)
_SWITCH_INTERVAL = 0.0005
#: thresholds of the garbage collector (`gc.set_threshold`)
_GC_THRESHOLDS = (10_000, 20, 50)
#: seconds that open streams get to end when the sidecar stops
_STREAM_GRACE = 1.0
#: states in which a subscription counts as serving
_SERVING = {SubscriptionState.RUNNING, SubscriptionState.PAUSED, SubscriptionState.PROBING}

log = Log("server")


def run(settings: Settings) -> int:
    """Run a sidecar until a signal stops it. Returns the exit code: 0 after a drain, 1 if it could not start or a
    second signal ended the drain."""
    logs.configure(settings.log)
    # The threads of a broker need the interpreter many times a poll. By default a busy loop delays each time by 5 ms.
    sys.setswitchinterval(_SWITCH_INTERVAL)
    # Batches and leases are freed by reference counts alone, since they form no cycles. With the default thresholds,
    # scanning those in flight took an eighth of the time of a sidecar with many small batches.
    gc.set_threshold(*_GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=event_loop.new_event_loop) as runner:
        return runner.run(_run(settings))


async def _run(settings: Settings) -> int:
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    # By default it would end the process without a drain.
    loop.add_signal_handler(signal.SIGHUP, _ignore_hangup)
    sidecar = await _start(settings)
    if sidecar is None:
        return 1
    log.info("stopping", signal=(await signals.get()).name, deadline=settings.drain.deadline)
    stop = asyncio.create_task(sidecar.stop(settings.drain.deadline))
    again = asyncio.create_task(signals.get())
    await asyncio.wait((stop, again), return_when=asyncio.FIRST_COMPLETED)
    if again.done():
        log.warning("stopping at once: what is not committed will be delivered again", signal=again.result().name)
        stop.cancel()
        await asyncio.wait((stop,))
        await sidecar.close()
        return 1
    again.cancel()
    stop.result()
    return 0


def _ignore_hangup() -> None:
    log.warning("ignored a signal: the configuration is read at the start only; restart to change it", signal="SIGHUP")


async def _start(settings: Settings) -> "Sidecar | None":
    """A running sidecar, or None if it cannot start; the log says why."""
    sidecar = None
    try:
        sidecar = Sidecar(settings)
        await sidecar.start()
    except OfframpError as error:
        log.error("cannot start", error=error)
        if sidecar is not None:
            await sidecar.close()
        return None
    return sidecar


class Sidecar:
    """Everything that one configuration describes. Call `start`, then `stop`; `close` ends it at once, at any time."""

    def __init__(self, settings: Settings) -> None:
        """Raises `StartError`."""
        self._settings = settings
        self._boot = os.urandom(BOOT_BYTES)
        self._started_at = time.monotonic()
        self._serving = False
        self._draining = False
        self._loop_lag = process.LoopLag()
        self._tasks: set[asyncio.Task[None]] = set()
        self._tracing = tracing.start(settings.tracing, os.environ)
        self._connections = Connections(settings.brokers, brokers.create)
        #: by the subscription that they work for
        self._pushers: dict[str, Pusher] = {}
        self._registry = self._subscriptions()
        #: those whose broker is open and that are not drained yet
        self._started: list[AnySubscription] = []
        self._services = Services(
            ConsumerService(self._registry, settings.listen),
            PublishService(self._registry, self._connections, settings.listen.max_request_bytes),
            LogService(self._registry, self._connections, settings.listen.unread),
            AdminService(self._registry, self._connections, self.status, Clock(), settings.listen.unread),
            HealthService(self.is_serving),
        )
        self._credentials = CredentialStore(settings.listen, settings.clients)
        self._listeners = GrpcListeners(settings, self._credentials, self._services)
        self._page = StatusPage(self._registry, self.status, self._connections.usable)
        routes: dict[str, Route] = {
            **({"/": self._page.respond} if settings.http.page else {}),
            "/healthz": self._healthz,
            "/startupz": self._startupz,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/version": self._version,
        }
        self._http = HttpServer(settings.http.address, routes)

    def _subscriptions(self) -> SubscriptionRegistry:
        leased: dict[bytes, Subscription] = {}
        ranged: list[RangeSubscription] = []
        for number, settings in enumerate(self._settings.subscriptions.values()):
            broker = self._connections[settings.broker].broker
            if settings.mode is SubscriptionMode.RANGES:
                ranged.append(RangeSubscription(settings, broker))
                continue
            prefix = lease_prefix(self._boot, number)
            system = self._settings.brokers[settings.broker].type
            tracer = self._tracing.tracer(settings, system) if self._tracing is not None else None
            leased[prefix] = subscription = Subscription(settings, broker, prefix=prefix, tracer=tracer)
            if settings.push.enabled:
                self._pushers[settings.name] = push.create(subscription, tracer)
        return SubscriptionRegistry(self._boot, leased, ranged)

    async def start(self) -> None:
        """Start downstream first, so that no record is fetched before workers can connect. Raises `OfframpError`."""
        listen = self._settings.listen
        if not listen.socket and not listen.tcp:
            raise StartError("listen: neither socket nor tcp is set, so no app could connect")
        http = await self._http.start() if self._settings.http.address else ""
        # Listeners before brokers: a second sidecar fails before it touches any data.
        self._listeners.prepare()
        await self._connections.open(_BROKER_OPEN_TIMEOUT)
        await self._listeners.open()
        for subscription in self._registry:
            self._spawn(self._start_subscription(subscription))
        self._spawn(self._loop_lag.run())
        self._spawn(self._credentials.run())
        self._spawn(self._listeners.watch())
        self._spawn(self._page.run())
        self._serving = True
        log.info(
            "ready",
            version=VERSION,
            socket=listen.socket,
            tcp=self._listeners.tcp,
            http=http,
            subscriptions=[*self._settings.subscriptions],
            seconds=time.monotonic() - self._started_at,
        )

    async def stop(self, deadline: float) -> None:
        """Stop upstream first: fetching, then the batches that workers hold, then the workers, then the brokers.

        `deadline`: seconds that workers get to settle. HTTP stops last, since a draining sidecar is alive.
        """
        self._draining = True
        began = time.monotonic()
        await asyncio.gather(*(self._drain(subscription, deadline) for subscription in self._started))
        log.info("drained", seconds=time.monotonic() - began)
        # Streams end only now, so that every settlement has had its result; publish calls end with the server.
        self._services.stop()
        await self._listeners.stop(_STREAM_GRACE)
        await self.close()
        log.info("stopped", seconds=time.monotonic() - began)

    async def close(self) -> None:
        """End everything at once. The next sidecar delivers again what is not committed."""
        self._draining = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listeners.stop(None)
        await asyncio.gather(*(subscription.close() for subscription in self._started), return_exceptions=True)
        await asyncio.gather(*(pusher.close() for pusher in self._pushers.values()), return_exceptions=True)
        self._listeners.close()
        await self._connections.close()
        await self._http.stop()
        await self._page.close()
        if self._tracing is not None:
            await self._tracing.close()

    def status(self, subscriptions: Iterable[AnySubscription]) -> Status:
        return Status(
            version=VERSION,
            boot=self._boot,
            uptime=time.monotonic() - self._started_at,
            draining=self._draining,
            subscriptions=tuple(subscription.status() for subscription in subscriptions),
            brokers=tuple(connection.status() for connection in self._connections),
            trouble=(*self._listeners.troubles(), *self._credentials.troubles()),
            runtime={"event loop": event_loop.NAME},
        )

    def is_serving(self, name: str) -> bool | None:
        """Whether the sidecar (""), a service or `subscription/<name>` serves. None if it does not exist, or if it is a
        subscription for which the caller has no right at all."""
        serving = self._serving and not self._draining
        if name == "" or name in NAMES:
            return serving
        for subscription in self._registry:
            if name == f"subscription/{subscription.settings.name}":
                known = any(current().may(right, subscription.settings.name) for right in Right)
                return serving and subscription.status().state in _SERVING if known else None
        return None

    async def _start_subscription(self, subscription: AnySubscription) -> None:
        await self._connections[subscription.settings.broker].opened.wait()
        if self._draining:
            # Too late: nothing would drain it.
            return
        await subscription.start()
        self._started.append(subscription)
        if pusher := self._pushers.get(subscription.settings.name):
            pusher.start()

    async def _drain(self, subscription: AnySubscription, deadline: float) -> None:
        try:
            await subscription.drain(deadline)
        except Exception as error:
            # The other subscriptions and the workers must still be stopped in order.
            log.bug("unhandled exception while draining a subscription", error, subscription=subscription.settings.name)
        self._started.remove(subscription)

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.bug("a background task exited", error)

    def _healthz(self) -> Response:
        # A response proves that the event loop is not blocked. A slow app or an absent broker must not restart the pod;
        # a subscription that a bug has ended must, and a socket that is lost for good.
        broken = [subscription.broken for subscription in self._registry if subscription.broken]
        broken += self._listeners.lost()
        return Response("\n".join(broken) + "\n", HTTPStatus.INTERNAL_SERVER_ERROR) if broken else Response("ok\n")

    def _startupz(self) -> Response:
        # Unlike readiness, this holds while the broker is away or the sidecar drains: an app may wait for its socket.
        return Response("started\n") if self._serving else Response("starting\n", HTTPStatus.SERVICE_UNAVAILABLE)

    def _readyz(self) -> Response:
        reasons = ["draining"] if self._draining else [] if self._serving else ["starting"]
        if self._settings.http.gate_readiness:
            reasons += self._not_consuming()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return _json({"ready": not reasons, "reasons": reasons}, status)

    def _not_consuming(self) -> list[str]:
        """Why no records reach workers: for `http.gate_readiness`."""
        reasons = [f"broker {one.name}: {one.trouble}" for one in self.status(()).brokers if one.trouble]
        for subscription in self._registry:
            status = subscription.status()
            if status.state not in _SERVING:
                reasons.append(f"subscription {status.name} is {status.state.name.lower()}")
        return reasons

    def _metrics(self) -> Response:
        meters = {subscription.settings.name: subscription.meters for subscription in self._registry}
        access = metrics.Access(refused=self._listeners.refused(), certificate_expires=self._credentials.expires)
        scrape = metrics.Scrape(self.status(self._registry), meters, process.sample(self._loop_lag), access)
        return Response(metrics.render(scrape), content_type=metrics.CONTENT_TYPE)

    def _version(self) -> Response:
        return _json({"version": VERSION, "protocol": PROTOCOL, "protocol_minor": PROTOCOL_MINOR})


def _json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(json.dumps(value) + "\n", status, "application/json")
