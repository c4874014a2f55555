"""Opens the configured brokers when the sidecar starts, and tries again while they cannot be reached."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from sidecar import brokers
from sidecar.brokers.base import Broker, Traits
from sidecar.model.errors import BrokerError, Corrupt, InvalidRequest, OfframpError, StartError, Unavailable, Unknown
from sidecar.model.reasons import Reason
from sidecar.observability.logs import Log
from sidecar.observability.status import BrokerStatus
from sidecar.settings import BrokerSettings

#: seconds before the first retry, and the most between two
_FIRST_RETRY, _MAX_RETRY = 0.5, 15.0

log = Log("broker")


class Connection:
    """One configured broker, and whether it is open."""

    def __init__(self, settings: BrokerSettings, broker: Broker) -> None:
        self.settings = settings
        self.broker = broker
        self.opened = asyncio.Event()
        #: set when the first attempt has ended, whether it succeeded or not
        self.tried = asyncio.Event()
        #: why it is not open; empty once it is
        self.trouble = "not connected yet"

    async def open(self) -> None:
        """Returns when it is open, however many attempts that takes. Raises `StartError` and `Corrupt`, which no
        retry can cure."""
        wait = _FIRST_RETRY
        try:
            while not await self._try():
                await asyncio.sleep(wait)
                wait = min(wait * 2, _MAX_RETRY)
        except OfframpError as error:
            self.trouble = str(error)
            raise

    async def _try(self) -> bool:
        try:
            await self.broker.open()
        except Corrupt:
            raise
        except BrokerError as error:
            if str(error) != self.trouble:
                log.warning("cannot open the broker; trying again", broker=self.settings.name, error=error)
            self.trouble = str(error)
            return False
        finally:
            self.tried.set()
        self.trouble = ""
        self.opened.set()
        return True

    def status(self) -> BrokerStatus:
        return BrokerStatus(
            name=self.settings.name,
            type=self.settings.type,
            trouble=self.trouble or self.broker.trouble,
            facts=dict(self.broker.facts),
        )


class Connections:
    """All configured brokers, by name."""

    def __init__(self, settings: Mapping[str, BrokerSettings], create: Callable[[BrokerSettings], Broker]) -> None:
        """Raises `StartError` for a broker whose library is not installed."""
        self._connections = {name: Connection(broker, _create(broker, create)) for name, broker in settings.items()}
        self._opening: dict[str, asyncio.Task[None]] = {}

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._connections.values())

    def __getitem__(self, name: str) -> Connection:
        return self._connections[name]

    def usable(self, name: str) -> Broker:
        """The broker of that name. Raises what `traits` raises, and `Unavailable` if it is not open."""
        connection = self._find(name)
        if not connection.opened.is_set():
            raise Unavailable(f"broker {name}: {connection.trouble}")
        return connection.broker

    def traits(self, name: str) -> Traits:
        """What the broker of that name can do. Raises `InvalidRequest` if the name is empty, and `Unknown`."""
        return self._find(name).broker.traits

    def _find(self, name: str) -> Connection:
        connection = self._connections.get(name)
        if connection is None:
            known = ", ".join(sorted(self._connections)) or "none"
            if not name:
                raise InvalidRequest(f"broker must be given; there are: {known}")
            raise Unknown(f'there is no broker "{name}"; there are: {known}', Reason.BROKER_NOT_FOUND)
        return connection

    async def open(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for the first attempts; brokers that take longer are opened in the background.

        Raises `StartError` and `Corrupt` if a broker can never be opened and this is known by then.
        """
        self._opening = {name: asyncio.create_task(connection.open()) for name, connection in self._connections.items()}
        try:
            async with asyncio.timeout(timeout):
                for connection in self:
                    await connection.tried.wait()
        except TimeoutError:
            pass
        # One more iteration of the loop, so that a task whose attempt failed for good has ended.
        await asyncio.sleep(0)
        for name, task in self._opening.items():
            if task.done():
                task.result()
            else:
                task.add_done_callback(partial(_log_outcome, name))

    async def close(self) -> None:
        """Never raises."""
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for connection in self:
            if connection.opened.is_set():
                await connection.broker.close()


def _create(settings: BrokerSettings, create: Callable[[BrokerSettings], Broker]) -> Broker:
    try:
        return create(settings)
    except ImportError as error:
        what = f"brokers.{settings.name}: type {settings.type} needs a library that is not installed"
        if extra := brokers.extra(settings.type):
            raise StartError(f'{what}: pip install "offramp-sidecar[{extra}]"') from error
        raise StartError(f"{what}: {error}") from error


def _log_outcome(name: str, task: asyncio.Task[None]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is None:
        log.info("the broker is open", broker=name)
    elif isinstance(error, OfframpError):
        log.error("the broker cannot be opened", broker=name, error=error)
    else:
        log.bug("the broker cannot be opened", error, broker=name)
