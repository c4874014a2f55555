"""The client library pulsar-client, and the threads for its calls that block.

Offramp uses the objects behind the library's own classes (`_pulsar`): those classes make one more Python object for
each message, and offer no ack without waiting.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import _pulsar
import pulsar

from sidecar.brokers.pulsar.errors import connect_diagnosis, is_vague, translate
from sidecar.brokers.pulsar.options import PulsarOptions

T = TypeVar("T")

#: blocking calls at a time: joining many lanes, and receiving from some
_THREADS = 8
#: seconds that closing something may take when the broker does not answer
CLOSE_TIMEOUT = 2.0


def call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any) -> None:
    """For callbacks of the library, which come in threads of its own: an exception there would end the process, so
    nothing is called if the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


class ClientThreads:
    """A client, and its threads. Connects when something is first asked of the broker."""

    def __init__(self, options: PulsarOptions) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="pulsar")
        self._options = options
        self._closing = False
        authentication = None
        if options.token:
            authentication = pulsar.AuthenticationToken(options.token)
        elif options.token_file:
            authentication = pulsar.AuthenticationToken(options.read_token)
        try:
            self._client = pulsar.Client(
                options.url,
                authentication=authentication,
                operation_timeout_seconds=max(1, int(options.timeout)),
                connection_timeout_ms=int(options.timeout * 1000),
                # Its errors are reported by ours; its own log would only repeat them on the console.
                logger=pulsar.FileLogger(_pulsar.LoggerLevel.Error, "/dev/null"),
                stats_interval_in_seconds=0,
                tls_trust_certs_file_path=options.tls_ca or None,
                tls_validate_hostname=options.tls_check_hostname,
                tls_certificate_file_path=options.tls_certificate or None,
                tls_private_key_file_path=options.tls_key or None,
            )
        except Exception as error:
            raise translate(error, f"use {options.url}") from error

    async def run(self, doing: str, call: Callable[..., T], *arguments: Any, **more: Any) -> T:
        """Makes the call in a thread. Raises one of our errors, which says what was tried: `doing`."""
        loop = asyncio.get_running_loop()

        def called() -> T:
            try:
                return call(*arguments, **more)
            except Exception as error:
                # While closing, nobody reads the reason any more.
                diagnose = is_vague(error) and not self._closing
                reason = connect_diagnosis(self._options, doing) if diagnose else None
                raise (reason or translate(error, doing)) from error

        return await loop.run_in_executor(self._threads, called)

    async def partitions(self, name: str) -> list[str]:
        """The topics of a topic's partitions: the topic itself, if it has none or does not exist."""
        return list(await self.run(f"find {name}", self._client.get_topic_partitions, name))

    async def subscribe(self, name: str, group: str, **settings: Any) -> Any:
        return await self.run(f"consume {name}", self._make_unowned, self._client.subscribe, name, group, **settings)

    async def producer(self, name: str, **settings: Any) -> Any:
        producer = await self.run(f"publish to {name}", self._client.create_producer, name, **settings)
        return producer._producer

    async def reader(self, name: str, start: tuple[int, int], **settings: Any) -> Any:
        """A reader that begins after the entry `start`, given as ledger and entry."""
        id_ = pulsar.MessageId(-1, *start, -1)
        return await self.run(f"read {name}", self._make_unowned, self._client.create_reader, name, id_, **settings)

    def _make_unowned(self, make: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """A consumer or a reader to which the client keeps no reference."""
        made = make(*arguments, **settings)
        # The client keeps everything it made, with what it has received, until it is closed by an object that is not
        # used here. It needs that for listeners, and there are none.
        self._client._consumers.remove(made)
        return made._consumer if isinstance(made, pulsar.Consumer) else made._reader

    async def close(self) -> None:
        """Never raises. Takes little longer than `CLOSE_TIMEOUT`, whatever the broker does."""
        self._closing = True
        if not await self.close_one(self._client._client):
            # Calls that wait for the broker would hold up the exit of the process. This ends them at once.
            with contextlib.suppress(Exception):
                await asyncio.to_thread(self._client.shutdown)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def close_one(self, one: Any) -> bool:
        """Closes a consumer, a reader, a producer or a client. Never raises, needs no thread, and waits at most
        `CLOSE_TIMEOUT`. False: there was no answer by then, and the library goes on closing in the background."""
        loop = asyncio.get_running_loop()
        closed: asyncio.Future[None] = loop.create_future()

        def resolve() -> None:
            if not closed.done():
                closed.set_result(None)

        try:
            one.close_async(lambda _: call_in_loop(loop, resolve))
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await closed
        except TimeoutError:
            return False
        except _pulsar.PulsarException:
            # It was closed before.
            pass
        return True
