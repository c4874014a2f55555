"""The sidecar as one process: brokers, subscriptions, gRPC and HTTP, from start to drain."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Coroutine, Iterable
from http import HTTPStatus

from sidecar import brokers, logs, metrics, process
from sidecar.clock import Clock
from sidecar.connections import Connections
from sidecar.errors import OfframpError, StartError
from sidecar.http import HttpServer, Response
from sidecar.listeners import UnixListener, listen_tcp
from sidecar.logs import Log
from sidecar.service.admin import AdminService
from sidecar.service.consumer import ConsumerService
from sidecar.service.directory import BOOT_BYTES, Directory, lease_prefix
from sidecar.service.health import HealthService
from sidecar.service.publish import PublishService
from sidecar.service.services import NAMES, Services, make_server
from sidecar.settings import Settings
from sidecar.status import Status, SubscriptionState
from sidecar.subscription import Subscription
from sidecar.version import PROTOCOL, PROTOCOL_MINOR, VERSION

#: seconds to wait for brokers at the start; those that take longer are opened while the sidecar serves
_PATIENCE = 1.0
#: seconds after which a thread that runs gives way to another that wants to
_SWITCH = 0.0005
#: seconds that streams get for their last words when the sidecar stops
_FAREWELL = 1.0
#: states in which a subscription does its job, or would if it were allowed to
_SERVING = {SubscriptionState.RUNNING, SubscriptionState.PAUSED, SubscriptionState.PROBING}

log = Log("server")


def run(settings: Settings) -> int:
    """Run a sidecar until a signal stops it. Answers the exit code: 0 after a drain, 1 if it could not start or was
    told twice to stop."""
    logs.configure(settings.log)
    # A broker's threads ask for the interpreter many times a poll; a busy loop would keep each waiting for 5 ms.
    sys.setswitchinterval(_SWITCH)
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    loop = asyncio.get_running_loop()
    told: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.put_nowait, number)
    sidecar = await _started(settings)
    if sidecar is None:
        return 1
    log.info("stopping", signal=(await told.get()).name, deadline=settings.drain.deadline)
    stop = asyncio.create_task(sidecar.stop(settings.drain.deadline))
    again = asyncio.create_task(told.get())
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


async def _started(settings: Settings) -> "Sidecar | None":
    """None if it cannot start, and the log says why."""
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
    """Everything that one configuration describes. `start`, then `stop`; `close` ends it at once, at any time."""

    def __init__(self, settings: Settings) -> None:
        """Raises `StartError`."""
        self._settings = settings
        self._boot = os.urandom(BOOT_BYTES)
        self._began = time.monotonic()
        self._serving = False
        self._draining = False
        self._watch = process.LoopWatch()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = Connections(settings.brokers, brokers.create)
        prefixes = {lease_prefix(self._boot, number): name for number, name in enumerate(settings.subscriptions)}
        self._directory = Directory(
            self._boot, {prefix: self._subscription(prefix, name) for prefix, name in prefixes.items()}
        )
        #: those whose broker is open
        self._started: list[Subscription] = []
        self._server = make_server(settings.listen)
        self._services = Services(
            ConsumerService(self._directory, settings.listen),
            PublishService(self._directory, self._connections),
            AdminService(self._directory, self._connections, self.status, Clock()),
            HealthService(self.is_serving),
        )
        self._services.register(self._server)
        self._socket = UnixListener(settings.listen.socket, settings.listen.socket_mode)
        routes = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/version": self._version,
        }
        self._http = HttpServer(settings.http.address, routes)

    def _subscription(self, prefix: bytes, name: str) -> Subscription:
        settings = self._settings.subscriptions[name]
        return Subscription(settings, self._connections[settings.broker].broker, prefix=prefix)

    async def start(self) -> None:
        """Downstream first: records flow only when there is somebody to hand them to. Raises `OfframpError`."""
        listen = self._settings.listen
        if not listen.socket and not listen.tcp:
            raise StartError("listen: neither socket nor tcp is set, so that no app could connect")
        http = await self._http.start() if self._settings.http.address else ""
        # Listeners before brokers: a second sidecar is refused before it touches any data.
        if listen.socket:
            self._socket.prepare(self._server)
        tcp = listen_tcp(self._server, listen.tcp) if listen.tcp else ""
        await self._connections.open(_PATIENCE)
        await self._server.start()
        if listen.socket:
            self._socket.show()
        for subscription in self._directory:
            self._spawn(self._start_subscription(subscription))
        self._spawn(self._watch.run())
        self._serving = True
        log.info(
            "ready",
            version=VERSION,
            socket=listen.socket,
            tcp=tcp,
            http=http,
            subscriptions=[*self._settings.subscriptions],
            seconds=time.monotonic() - self._began,
        )

    async def stop(self, deadline: float) -> None:
        """Upstream first: no new records, then what workers hold, then the workers, then the brokers.

        Workers get so many seconds to settle. HTTP goes last: a sidecar that drains is alive.
        """
        self._draining = True
        began = time.monotonic()
        await asyncio.gather(*(self._drain(subscription, deadline) for subscription in self._started))
        self._started.clear()
        log.info("drained", seconds=time.monotonic() - began)
        # Streams end only now, so that every settlement was answered; publishes end with the server.
        self._services.stop()
        await self._server.stop(_FAREWELL)
        await self.close()
        log.info("stopped", seconds=time.monotonic() - began)

    async def close(self) -> None:
        """End everything at once. What is not committed is delivered again by the next sidecar."""
        self._draining = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.stop(None)
        await asyncio.gather(*(subscription.close() for subscription in self._started), return_exceptions=True)
        self._socket.close()
        await self._connections.close()
        await self._http.stop()

    def status(self, subscriptions: Iterable[Subscription]) -> Status:
        return Status(
            version=VERSION,
            boot=self._boot,
            uptime=time.monotonic() - self._began,
            draining=self._draining,
            subscriptions=tuple(subscription.status() for subscription in subscriptions),
            brokers=tuple(connection.status() for connection in self._connections),
        )

    def is_serving(self, name: str) -> bool | None:
        """Whether the sidecar (""), a service or `subscription/<name>` serves; None if there is no such thing."""
        serving = self._serving and not self._draining
        if name == "" or name in NAMES:
            return serving
        for subscription in self._directory:
            if name == f"subscription/{subscription.settings.name}":
                return serving and subscription.status().state in _SERVING
        return None

    async def _start_subscription(self, subscription: Subscription) -> None:
        await self._connections[subscription.settings.broker].opened.wait()
        await subscription.start()
        self._started.append(subscription)

    async def _drain(self, subscription: Subscription, deadline: float) -> None:
        try:
            await subscription.drain(deadline)
        except Exception as error:
            # The others still have something to lose, and so do the workers.
            log.bug("a subscription could not be drained", error, subscription=subscription.settings.name)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.bug("something that should go on has ended", error)

    def _healthz(self) -> Response:
        # That this is answered shows that the loop turns. A slow app or an absent broker must not restart the pod;
        # a loop that a bug has ended must.
        broken = [subscription.broken for subscription in self._directory if subscription.broken]
        return Response("\n".join(broken) + "\n", HTTPStatus.INTERNAL_SERVER_ERROR) if broken else Response("ok\n")

    def _readyz(self) -> Response:
        reasons = ["draining"] if self._draining else [] if self._serving else ["starting"]
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return _json({"ready": not reasons, "reasons": reasons}, status)

    def _metrics(self) -> Response:
        meters = {subscription.settings.name: subscription.meters for subscription in self._directory}
        scrape = metrics.Scrape(self.status(self._directory), meters, process.look(self._watch))
        return Response(metrics.render(scrape), content_type=metrics.CONTENT_TYPE)

    def _version(self) -> Response:
        return _json({"version": VERSION, "protocol": PROTOCOL, "protocol_minor": PROTOCOL_MINOR})


def _json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(json.dumps(value) + "\n", status, "application/json")
