"""What one group receives from one stream."""

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from typing import Any

from sidecar.brokers.queue.driver import HandlesLost, Received, Receiver
from sidecar.brokers.redis import scripts
from sidecar.brokers.redis.connection import Server
from sidecar.brokers.redis.entries import Mapping
from sidecar.brokers.redis.options import RedisOptions
from sidecar.model.errors import BrokerError, NotFound

#: ids in one command
_MANY = 500
#: how many looks for what others left pending there are in the time after which it may be taken, and seconds between
#: two at most
_SWEEPS, _LONGEST_SWEEP = 6, 10.0


class RedisReceiver(Receiver[bytes]):
    """A handle is the id of an entry: it outlives connections and this sidecar.

    What the server has given to this consumer name stays pending for it until it is acked, whoever knows of it: an
    earlier process, or nobody, if an answer was lost on its way. So whatever is pending and not known here is asked for
    at the start, and after every call that failed. What is pending for others is taken over once they have been silent
    for `claim_idle`.
    """

    def __init__(self, server: Server, stream: str, group: str, options: RedisOptions, consumer: str) -> None:
        self.renew_every = options.claim_idle / 3
        self.first = False
        self.troubles: dict[str, str] = {}
        self.lost = 0
        self._server = server
        self._stream = stream
        self._group = group
        self._consumer = consumer
        self._mapping = Mapping(options.value_field.encode(), options.key_field.encode())
        self._idle_ms = int(options.claim_idle * 1000)
        self._deletes = options.delete_settled
        #: the server had lost the group: what is delivered was delivered before, until nothing is left of it
        self.delivers_again = False
        #: what was given out and is not acked
        self._held: set[bytes] = set()
        #: ids that are pending for this consumer or for others, found and not yet taken; and where to look for more
        self._found: deque[bytes] = deque()
        #: whose are looked for: ours, or those of all that are silent
        self._owner = consumer
        #: None: all were found
        self._after: bytes | None = b"-"
        self._next_sweep = 0.0
        #: the read that waits for something new
        self._waiting: asyncio.Task[Any] | None = None
        self._stopped = False

    @property
    def deletes(self) -> bool:
        return self._deletes or self.sole_reader

    # Receiving

    async def receive(self, records: int, size: int, timeout: float) -> Sequence[Received[bytes]]:
        clock = asyncio.get_running_loop().time
        asked = clock()
        try:
            found = await self._receive(records, size, timeout)
            while found and (now := clock()) - asked > self._idle_ms / 2000:
                # The answer came so late that others may have taken over what is in it.
                asked = now
                ours = await self._set_idle([one.handle for one in found], 0)
                found = [one for one, mine in zip(found, ours, strict=True) if mine]
        except NotFound as error:
            # The server has lost the group: made anew, it delivers everything again.
            raise HandlesLost(str(error)) from error
        except BaseException:
            # The server may have given entries to us all the same.
            self._look(self._consumer)
            raise
        self._held.update(one.handle for one in found)
        return found

    async def _receive(self, records: int, size: int, timeout: float) -> Sequence[Received[bytes]]:
        while pending := await self._find(records):
            if found := await self._claim(pending, size):
                return found
        trimmed, entries = await self._run(scripts.READ, records, size)
        self.lost += trimmed
        if not entries:
            self.delivers_again = False
            entries = await self._wait(timeout)
        return self._mapping.received(entries, again=self.delivers_again)

    async def _wait(self, timeout: float) -> Sequence[Any]:
        """The next entry, as soon as there is one. One alone: nobody knows how large they are."""
        if self._stopped:
            return ()
        command = ("XREADGROUP", "GROUP", self._group, self._consumer, "COUNT", 1, "BLOCK", max(1, int(timeout * 1000)))
        reading = self._server.call(self._doing, *command, "STREAMS", self._stream, ">", wait=timeout)
        self._waiting = asyncio.create_task(reading)
        await asyncio.wait((self._waiting,))
        if self._waiting.cancelled():
            return ()
        answer = self._waiting.result()
        return answer[0][1] if answer else ()

    async def stop(self) -> None:
        """What a read gets that is cancelled goes back in `close`."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def _find(self, records: int) -> list[bytes]:
        """Ids of entries that are pending and not known here. Empty: there are none, or it is not the time to look."""
        while not self._found:
            if self._after is not None:
                ids, self._after = await self._pending(self._owner, self._after)
                self._found.extend(id_ for id_ in ids if id_ not in self._held)
            elif (now := asyncio.get_running_loop().time()) >= self._next_sweep:
                self._look("")
                interval = min(self._idle_ms / 1000 / _SWEEPS, _LONGEST_SWEEP)
                # Sidecars that started together do not all ask for the same entries.
                self._next_sweep = now + interval * random.uniform(0.5, 1.5)
            else:
                break
        return [self._found[at] for at in range(min(records, len(self._found)))]

    async def _pending(self, owner: str, after: bytes) -> tuple[list[bytes], bytes | None]:
        """Ids of what is pending for a consumer, or for all that are silent, and where to go on (None: at the end)."""
        command: list[Any] = ["XPENDING", self._stream, self._group, "IDLE", 0 if owner else self._idle_ms]
        rows = await self._server.call(self._doing, *command, after, "+", _MANY, *((owner,) if owner else ()))
        return [row[0] for row in rows], b"(" + rows[-1][0] if len(rows) == _MANY else None

    async def _claim(self, ids: Sequence[bytes], size: int) -> list[Received[bytes]]:
        idle = 0 if self._owner else self._idle_ms
        lost, done, entries, counts = await self._run(scripts.CLAIM, size, idle, self._owner, *ids)
        for _ in range(done):
            self._found.popleft()
        self.lost += lost
        return self._mapping.received(entries, again=True, counts=counts)

    def _look(self, owner: str) -> None:
        """Begins to look for what is pending for a consumer; empty: for anybody who is silent."""
        self._owner, self._after = owner, b"-"
        self._found.clear()

    # Settling

    async def ack(self, handles: Sequence[bytes], cumulative: int) -> Sequence[int]:
        """An entry that somebody else has taken over is acked as well: it is done, whoever has it."""
        doing = f"ack entries of {self._stream}"
        many = [handles[at : at + _MANY] for at in range(0, len(handles), _MANY)]
        if len(many) == 1:
            await self._server.call(doing, "XACK", self._stream, self._group, *handles)
        else:
            await self._server.pipeline(doing, [("XACK", self._stream, self._group, *some) for some in many])
        self._held.difference_update(handles)
        if self.deletes:
            await self._server.run(f"delete entries of {self._stream}", scripts.TRIM, self._stream, "", "")
        return ()

    async def give_back(self, handles: Sequence[bytes], delay: float) -> None:
        """They count as idle for long enough to be taken over."""
        await self._set_idle(handles, self._idle_ms)
        self._held.difference_update(handles)

    async def renew(self, handles: Sequence[bytes]) -> Sequence[bytes | None]:
        ours = await self._set_idle(handles, 0)
        gone = [handle for handle, mine in zip(handles, ours, strict=True) if not mine]
        self._held.difference_update(gone)
        return [handle if mine else None for handle, mine in zip(handles, ours, strict=True)]

    async def _set_idle(self, handles: Sequence[bytes], idle_ms: int) -> list[int]:
        ours: list[int] = []
        for at in range(0, len(handles), _MANY):
            ours += await self._run(scripts.SET_IDLE, idle_ms, *handles[at : at + _MANY])
        return ours

    async def close(self) -> None:
        """Gives back what an answer that was lost on its way has left pending. A consumer that holds nothing is
        deleted, so that names of pods do not pile up."""
        try:
            after: bytes | None = b"-"
            while after is not None:
                ids, after = await self._pending(self._consumer, after)
                await self.give_back(ids, 0.0)
            await self._run(scripts.FORGET, 0)
        except BrokerError:
            # Others take it over in time, as from a sidecar that was killed.
            pass

    async def forget_silent_consumers(self, seconds: float) -> None:
        await self._server.run(self._doing, scripts.FORGET, self._stream, self._group, "", int(seconds * 1000))

    @property
    def _doing(self) -> str:
        return f"read {self._stream} for group {self._group}"

    async def _run(self, script: scripts.Script, *arguments: Any) -> Any:
        return await self._server.run(self._doing, script, self._stream, self._group, self._consumer, *arguments)
