"""The admin API of Pulsar, as far as it is needed: topics, and where a group is in a lane."""

import asyncio
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from typing import Any

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.pulsar import names, positions
from sidecar.brokers.pulsar.errors import translate
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.brokers.pulsar.positions import after, pack
from sidecar.brokers.pulsar.reaching import token_of
from sidecar.model.errors import BrokerError, NotFound, Refused, Unavailable

#: the subscription that keeps a topic and what is in it
KEEPER = "offramp.keep"
#: before the first message
_EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
#: what a topic that exists already is answered with
_CONFLICT = 409
#: calls at a time
_THREADS = 4


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A group in a lane."""

    backlog: int
    #: workers consume it now
    has_consumers: bool
    properties: dict[str, str]
    #: consumers by name, and hashes of keys that wait until they have acked, though they hold nothing
    deadlocks: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Standing:
    """How a lane is, and where groups are in it."""

    #: the first position that can be read
    start: int
    #: the ledger and entry of the last message; the entry is -1 if there is none
    last: tuple[int, int]
    #: by group: everything before is acked
    cursors: dict[str, int]
    #: ledgers in order, with the number of their entries
    ledgers: tuple[tuple[int, int], ...] = ()

    @property
    def is_empty(self) -> bool:
        """There is no message, and so nothing that keeps a ledger: Pulsar will put another in its place."""
        return not any(entries for _, entries in self.ledgers)


class Admin:
    """Every call waits for the answer, `timeout` seconds at the most. Raises `Unavailable`, `Refused`, `NotFound`.

    It has threads of its own: where it does not answer, receiving and acking go on. And calls that wait for a thread
    while another waits for an answer in vain fail with that one, so that hundreds of them take no longer than a few.
    """

    def __init__(self, options: PulsarOptions) -> None:
        self._options = options
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="pulsar-admin")
        #: when a call last ended without an answer
        self._silent_at = -inf
        self.url = (options.admin_url or _beside(options.url)).rstrip("/")
        #: it is there: it has answered before, if only by a refusal
        self.answers = False
        self._made: urllib.request.OpenerDirector | None = None

    async def partitions(self, name: str) -> int:
        """Of a partitioned topic; 0 if it has none. Raises `NotFound`."""
        found = await self._ask("GET", f"{names.path(name)}/partitions?checkAllowAutoCreation=false")
        return int(found["partitions"])

    async def make(self, name: str, lanes: int) -> None:
        """A partitioned topic, unless there is a topic of this name."""
        await self._ask("PUT", f"{names.path(name)}/partitions", lanes, fine=_CONFLICT)

    async def keep(self, name: str) -> None:
        """A subscription that nobody consumes: Pulsar removes what no subscription waits for, and then the topic. Where
        one waits for it, all is well: what its consumers have dealt with would stay for ever otherwise."""
        for lane in await self.lanes(name):
            stats = await self._ask("GET", f"{names.path(lane)}/stats")
            if not any(one["isDurable"] for one in stats["subscriptions"].values()):
                await self.subscribe(lane, KEEPER)

    async def lanes(self, name: str) -> list[str]:
        """The topics that a topic consists of. Raises `NotFound`."""
        partitions = await self.partitions(name)
        return [names.partition(name, number) for number in range(partitions)] or [name]

    async def topics(self, namespace: str) -> set[str]:
        """All topics of a namespace, partitioned ones as one."""
        found = await self._ask("GET", f"persistent/{namespace}")
        whole = await self._ask("GET", f"persistent/{namespace}/partitioned")
        # A partitioned topic is there also before its partitions are.
        return {names.split(name)[0] for name in found} | set(whole)

    async def standing(self, name: str) -> Standing:
        """Of a topic that is no partitioned one."""
        found = await self._ask("GET", f"{names.path(name)}/internalStats")
        last = _id(found["lastConfirmedEntry"])
        ledgers = found["ledgers"]
        # The ledger that is written to is listed without its entries.
        filled = [one["ledgerId"] for one in ledgers[:-1] if one["entries"]] + [one["ledgerId"] for one in ledgers[-1:]]
        start = pack(filled[0], 0) if filled else after(*last)
        cursors = {group: after(*_id(one["markDeletePosition"])) for group, one in found["cursors"].items()}
        counts = [(one["ledgerId"], one["entries"]) for one in ledgers]
        if counts and counts[-1][0] == last[0]:
            counts[-1] = (last[0], last[1] + 1)
        return Standing(max(0, start), last, cursors, tuple(counts))

    async def end(self, name: str) -> LaneEnd:
        """The ends of a topic that is no partitioned one."""
        standing = await self.standing(name)
        if standing.last[1] < 0:
            return LaneEnd(standing.start, max(standing.start, after(*standing.last)))
        last = await self._ask("GET", f"{names.path(name)}/lastMessageId")
        if last["entryId"] < 0:
            # All of it was removed, and Pulsar has forgotten what was the last.
            return LaneEnd(standing.start, standing.start)
        end = positions.end(last["ledgerId"], last["entryId"], last.get("batchIndex", -1))
        if end < 0:
            raise Refused(f"Pulsar: {name} has no position for its end: there is room for {positions.LIMITS}")
        return LaneEnd(min(standing.start, end), end)

    async def subscribed(self, name: str, group: str) -> Subscribed | None:
        """None: the group was never in this lane."""
        stats = await self._ask("GET", f"{names.path(name)}/stats?getPreciseBacklog=true")
        found = stats["subscriptions"].get(group)
        if found is None:
            return None
        properties = found.get("subscriptionProperties") or {}
        deadlocks = frozenset(
            (consumer["consumerName"], draining["hash"])
            for consumer in found["consumers"]
            if not consumer["unackedMessages"]
            for draining in consumer.get("drainingHashes") or ()
        )
        return Subscribed(int(found["msgBacklog"]), bool(found["consumers"]), properties, deadlocks)

    async def backlog(self, name: str, group: str) -> int:
        """Messages that a group has not acked; -1 if that is not known."""
        found = await self.subscribed(name, group)
        return found.backlog if found else -1

    async def subscribe(self, name: str, group: str) -> None:
        """Make a group that begins at the first message, unless it is there."""
        await self._ask("PUT", f"{names.path(name)}/subscription/{group}", _EARLIEST, fine=_CONFLICT)

    async def move(self, name: str, group: str, ledger: int, entry: int, *, after: bool) -> None:
        """A group's cursor to an entry, or after it. Ends the connections of its consumers."""
        target = {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1, "excluded": after}
        await self._ask("POST", f"{names.path(name)}/subscription/{group}/resetcursor", target)

    async def describe(self, name: str, group: str, properties: dict[str, str]) -> None:
        """Store texts beside a group's cursor, in place of those that were there."""
        await self._ask("PUT", f"{names.path(name)}/subscription/{group}/properties", properties)

    def close(self) -> None:
        """Does not wait: calls that are under way keep their threads, and so the process, for up to `timeout`."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, method: str, path: str, body: object = None, *, fine: int = 0) -> Any:
        asked_at = time.monotonic()

        def call() -> Any:
            if asked_at < self._silent_at:
                raise Unavailable(f"Pulsar: the admin API at {self.url} does not answer")
            return self._call(method, path, body, fine)

        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except (Refused, NotFound):
            self.answers = True
            raise
        except BrokerError:
            raise
        except Exception as error:
            # What nobody foresaw.
            raise translate(error, f"ask {self.url}") from error
        self.answers = True
        return found

    def _call(self, method: str, path: str, body: object, fine: int) -> Any:
        before, _, query = path.partition("?")
        url = f"{self.url}/admin/v2/{urllib.parse.quote(before)}{'?' + query if query else ''}"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json", **self._credentials()}
        request = urllib.request.Request(url, method=method, data=data, headers=headers)
        try:
            with self._opener().open(request, timeout=self._options.timeout) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                if error.code == fine:
                    return None
                raise _refusal(error, f"{method} {url}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                self._silent_at = time.monotonic()
            raise Unavailable(f"Pulsar: the admin API at {self.url} cannot be asked: {reason}") from error
        return json.loads(text) if text else None

    def _credentials(self) -> dict[str, str]:
        token = token_of(self._options)
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _opener(self) -> urllib.request.OpenerDirector:
        if self._made is None:
            made: list[urllib.request.BaseHandler] = [_Onward()]
            if self.url.startswith("https"):
                tls = ssl.create_default_context(cafile=self._options.tls_ca or None)
                tls.check_hostname = self._options.tls_check_hostname
                if self._options.tls_certificate:
                    tls.load_cert_chain(self._options.tls_certificate, self._options.tls_key)
                made.append(urllib.request.HTTPSHandler(context=tls))
            self._made = urllib.request.build_opener(*made)
        return self._made


class _Onward(urllib.request.HTTPRedirectHandler):
    """A broker sends who asks for a topic on to the broker that has it. Python goes there only to read."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if code in (307, 308):
            return urllib.request.Request(newurl, req.data, req.headers, method=req.get_method())
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _refusal(error: urllib.error.HTTPError, asked: str) -> BrokerError:
    try:
        said = json.loads(error.read())["reason"]
    except (OSError, ValueError, KeyError, TypeError):
        said = error.reason
    text = f"Pulsar: {asked}: {error.code}, {said}"
    if error.code == 404:
        return NotFound(text)
    if error.code in (400, 401, 403, 405, 412):
        return Refused(text)
    return Unavailable(text)


def _id(text: str) -> tuple[int, int]:
    ledger, entry = text.split(":")[:2]
    return int(ledger), int(entry)


def _beside(url: str) -> str:
    """Where the admin API of a broker is, unless somebody moved it."""
    found = urllib.parse.urlsplit(url)
    host = (found.hostname or "localhost") if found.netloc.count(",") == 0 else found.netloc.split(",")[0].split(":")[0]
    host = f"[{host}]" if ":" in host else host
    return f"https://{host}:8443" if found.scheme == "pulsar+ssl" else f"http://{host}:8080"
