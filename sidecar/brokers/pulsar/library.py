"""pulsar-client, as far as it is used: a client of it, and the threads in which its calls may block.

Offramp uses the objects behind the library's own classes (`_pulsar`), because those make one more Python object for
each message, and offer no ack without waiting.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import _pulsar
import pulsar

from sidecar.brokers.pulsar.errors import is_vague, translate
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.brokers.pulsar.reaching import token_of, why_not

T = TypeVar("T")

#: blocking calls at a time: connecting many lanes, and receiving from some
_THREADS = 8
#: seconds that something that is closed may take to say goodbye to a broker that does not answer
GOODBYE = 2.0


class Library:
    """A client, and its threads. Nothing is connected before something is asked."""

    def __init__(self, options: PulsarOptions) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="pulsar")
        self._options = options
        self._closing = False
        authentication = None
        if options.token:
            authentication = pulsar.AuthenticationToken(options.token)
        elif options.token_file:
            authentication = pulsar.AuthenticationToken(lambda: token_of(options))
        try:
            self._client = pulsar.Client(
                options.url,
                authentication=authentication,
                operation_timeout_seconds=max(1, int(options.timeout)),
                connection_timeout_ms=int(options.timeout * 1000),
                # What it has to say is told by the errors here; a second voice on the console is nobody's.
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
        """Call in a thread. Raises one of our errors, which says what was being done."""
        loop = asyncio.get_running_loop()

        def called() -> T:
            try:
                return call(*arguments, **more)
            except Exception as error:
                # At the end nobody wants to know.
                wanted = is_vague(error) and not self._closing
                known_better = why_not(self._options, doing) if wanted else None
                raise (known_better or translate(error, doing)) from error

        return await loop.run_in_executor(self._threads, called)

    async def partitions(self, name: str) -> list[str]:
        """The topics that a topic consists of: itself, if it has no partitions or does not exist."""
        return list(await self.run(f"find {name}", self._client.get_topic_partitions, name))

    async def subscribe(self, name: str, group: str, **settings: Any) -> Any:
        return await self.run(f"consume {name}", self._kept_by_nobody, self._client.subscribe, name, group, **settings)

    async def producer(self, name: str, **settings: Any) -> Any:
        producer = await self.run(f"publish to {name}", self._client.create_producer, name, **settings)
        return producer._producer

    async def reader(self, name: str, start: tuple[int, int], **settings: Any) -> Any:
        """From after the entry (ledger, entry) on."""
        id_ = pulsar.MessageId(-1, *start, -1)
        return await self.run(f"read {name}", self._kept_by_nobody, self._client.create_reader, name, id_, **settings)

    def _kept_by_nobody(self, make: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """A consumer or a reader that ends when nobody has it any more."""
        made = make(*arguments, **settings)
        # The client keeps all that it ever made, with what they have received, unless they are closed by these objects,
        # which are not used here. It does so for listeners, of which there are none.
        self._client._consumers.remove(made)
        return made._consumer if isinstance(made, pulsar.Consumer) else made._reader

    async def leave(self, one: Any) -> None:
        """Close a consumer, a reader or a producer. Never raises, needs no thread, and waits for `GOODBYE` at the most:
        one that gets no answer goes on closing by itself."""
        await self._close(one)

    async def close(self) -> None:
        """Never raises. Takes little longer than `GOODBYE`, whatever the broker does."""
        self._closing = True
        if not await self._close(self._client._client):
            # Calls that wait for the broker would hold up the end of the process. This ends them at once.
            with contextlib.suppress(Exception):
                await asyncio.to_thread(self._client.shutdown)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _close(self, one: Any) -> bool:
        loop = asyncio.get_running_loop()
        closed: asyncio.Future[None] = loop.create_future()

        def resolve() -> None:
            if not closed.done():
                closed.set_result(None)

        def told(_: _pulsar.Result) -> None:
            # Called in a thread of the library; an exception there would end the process.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(resolve)

        try:
            one.close_async(told)
            async with asyncio.timeout(GOODBYE):
                await closed
        except TimeoutError:
            return False
        except _pulsar.PulsarException:
            # It was closed before.
            pass
        return True
