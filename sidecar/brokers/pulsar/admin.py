"""The admin API of Pulsar, as far as it is needed: topics, subscriptions, and the ends of lanes."""

import asyncio
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.pulsar import positions
from sidecar.brokers.pulsar.errors import translate
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.brokers.pulsar.positions import after, pack
from sidecar.brokers.pulsar.topics import admin_path, partition_name, split_partition
from sidecar.model.errors import BrokerError, NotFound, Refused, Unavailable

#: the subscription that keeps Pulsar from removing a topic and what is in it
KEEPER = "offramp.keep"
#: the id before the first message
_EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
#: the HTTP status for something that exists already
_CONFLICT = 409
#: requests at a time
_THREADS = 4


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """A group in a lane, by the statistics of its subscription."""

    backlog: int
    has_consumers: bool
    properties: dict[str, str]
    #: names of consumers, each with the hash of a key that waits for its acks although it has nothing unacked
    deadlocks: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicState:
    """A lane, and the cursors of groups in it."""

    #: the first position that can be read
    start: int
    #: the ledger and entry of the last message; the entry is -1 if there is none
    last: tuple[int, int]
    #: by group: everything before this position is acked
    cursors: dict[str, int]
    #: ids of ledgers with the number of their entries, in order
    ledgers: tuple[tuple[int, int], ...] = ()

    @property
    def is_empty(self) -> bool:
        """There is no message, so Pulsar may replace the ledger by another."""
        return not any(entries for _, entries in self.ledgers)


class Admin:
    """A client of the admin API. Every call takes at most `timeout` seconds, and raises `Unavailable`, `Refused` or
    `NotFound`.

    It has threads of its own, so receiving and acking continue while it does not answer. When a request times out, the
    calls that waited for a thread meanwhile fail with it: hundreds of them take no longer than a few.
    """

    def __init__(self, options: PulsarOptions) -> None:
        self._options = options
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="pulsar-admin")
        #: when a request last timed out
        self._timed_out_at = -inf
        self.url = (options.admin_url or _default_url(options.url)).rstrip("/")
        #: it has answered before, if only with an error
        self.has_answered = False

    async def partition_count(self, name: str) -> int:
        """The number of partitions of a topic; 0 if it is not partitioned. Raises `NotFound`."""
        found = await self._request("GET", f"{admin_path(name)}/partitions?checkAllowAutoCreation=false")
        return int(found["partitions"])

    async def create_topic(self, name: str, lanes: int) -> None:
        """Creates a partitioned topic, unless there is a topic of this name."""
        await self._request("PUT", f"{admin_path(name)}/partitions", lanes, tolerated=_CONFLICT)

    async def keep_topic(self, name: str) -> None:
        """Creates a subscription that nobody consumes: Pulsar removes what no subscription waits for, and then the
        topic. Where there is a durable one already, it is enough: with ours, what its consumers acked would stay."""
        for lane in await self.partition_names(name):
            stats = await self._request("GET", f"{admin_path(lane)}/stats")
            if not any(one["isDurable"] for one in stats["subscriptions"].values()):
                await self.create_subscription(lane, KEEPER)

    async def partition_names(self, name: str) -> list[str]:
        """The topics of a topic's partitions; the topic itself, if it is not partitioned. Raises `NotFound`."""
        partitions = await self.partition_count(name)
        return [partition_name(name, number) for number in range(partitions)] or [name]

    async def topics(self, namespace: str) -> set[str]:
        """All topics of a namespace; a partitioned one counts as one."""
        found = await self._request("GET", f"persistent/{namespace}")
        whole = await self._request("GET", f"persistent/{namespace}/partitioned")
        # A partitioned topic exists before its partitions do.
        return {split_partition(name)[0] for name in found} | set(whole)

    async def topic_state(self, name: str) -> TopicState:
        """The state of a partition, or of a topic without partitions."""
        found = await self._request("GET", f"{admin_path(name)}/internalStats")
        last = _id(found["lastConfirmedEntry"])
        ledgers = found["ledgers"]
        # The ledger that is being written is listed without its entries.
        filled = [one["ledgerId"] for one in ledgers[:-1] if one["entries"]] + [one["ledgerId"] for one in ledgers[-1:]]
        start = pack(filled[0], 0) if filled else after(*last)
        cursors = {group: after(*_id(one["markDeletePosition"])) for group, one in found["cursors"].items()}
        counts = [(one["ledgerId"], one["entries"]) for one in ledgers]
        if counts and counts[-1][0] == last[0]:
            counts[-1] = (last[0], last[1] + 1)
        return TopicState(max(0, start), last, cursors, tuple(counts))

    async def lane_end(self, name: str) -> LaneEnd:
        """The ends of a partition, or of a topic without partitions."""
        state = await self.topic_state(name)
        if state.last[1] < 0:
            return LaneEnd(state.start, max(state.start, after(*state.last)))
        last = await self._request("GET", f"{admin_path(name)}/lastMessageId")
        if last["entryId"] < 0:
            # Everything was removed, and Pulsar has forgotten the last id.
            return LaneEnd(state.start, state.start)
        end = positions.end(last["ledgerId"], last["entryId"], last.get("batchIndex", -1))
        if end < 0:
            raise Refused(f"Pulsar: {name} has no position for its end: there is room for {positions.LIMITS}")
        return LaneEnd(min(state.start, end), end)

    async def subscription_stats(self, name: str, group: str) -> SubscriptionStats | None:
        """The group in a lane; None if it was never there."""
        stats = await self._request("GET", f"{admin_path(name)}/stats?getPreciseBacklog=true")
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
        return SubscriptionStats(int(found["msgBacklog"]), bool(found["consumers"]), properties, deadlocks)

    async def create_subscription(self, name: str, group: str) -> None:
        """Creates a group that begins at the first message, unless it exists."""
        await self._request("PUT", f"{admin_path(name)}/subscription/{group}", _EARLIEST, tolerated=_CONFLICT)

    async def move_cursor(self, name: str, group: str, ledger: int, entry: int, *, after: bool) -> None:
        """Moves a group's cursor to an entry, or after it. Disconnects its consumers."""
        target = {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1, "excluded": after}
        await self._request("POST", f"{admin_path(name)}/subscription/{group}/resetcursor", target)

    async def set_properties(self, name: str, group: str, properties: dict[str, str]) -> None:
        """Stores texts beside a group's cursor. Replaces all that were there."""
        await self._request("PUT", f"{admin_path(name)}/subscription/{group}/properties", properties)

    def close(self) -> None:
        """Does not wait: requests under way keep their threads, and so the process, for up to `timeout`."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _request(self, method: str, path: str, body: object = None, *, tolerated: int = 0) -> Any:
        asked_at = time.monotonic()

        def call() -> Any:
            if asked_at < self._timed_out_at:
                raise Unavailable(f"Pulsar: the admin API at {self.url} does not answer")
            return self._send(method, path, body, tolerated)

        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except (Refused, NotFound):
            self.has_answered = True
            raise
        except BrokerError:
            raise
        except Exception as error:
            # Not an expected error, such as an answer that cannot be parsed.
            raise translate(error, f"ask {self.url}") from error
        self.has_answered = True
        return found

    def _send(self, method: str, path: str, body: object, tolerated: int) -> Any:
        before, _, query = path.partition("?")
        url = f"{self.url}/admin/v2/{urllib.parse.quote(before)}{'?' + query if query else ''}"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json", **self._credentials()}
        request = urllib.request.Request(url, method=method, data=data, headers=headers)
        try:
            with self._opener.open(request, timeout=self._options.timeout) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                if error.code == tolerated:
                    return None
                raise _error_for(error, f"{method} {url}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                self._timed_out_at = time.monotonic()
            raise Unavailable(f"Pulsar: the admin API at {self.url} cannot be used: {reason}") from error
        return json.loads(text) if text else None

    def _credentials(self) -> dict[str, str]:
        token = self._options.read_token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = [_FollowRedirects()]
        if self.url.startswith("https"):
            handlers.append(urllib.request.HTTPSHandler(context=self._options.tls_context()))
        return urllib.request.build_opener(*handlers)


class _FollowRedirects(urllib.request.HTTPRedirectHandler):
    """A broker redirects requests for a topic to the broker that has it. Python follows redirects only for GET."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if code in (307, 308):
            return urllib.request.Request(newurl, req.data, req.headers, method=req.get_method())
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _error_for(error: urllib.error.HTTPError, asked: str) -> BrokerError:
    try:
        reason = json.loads(error.read())["reason"]
    except (OSError, ValueError, KeyError, TypeError):
        reason = error.reason
    text = f"Pulsar: {asked}: {error.code}, {reason}"
    if error.code == 404:
        return NotFound(text)
    if error.code in (400, 401, 403, 405, 412):
        return Refused(text)
    return Unavailable(text)


def _id(text: str) -> tuple[int, int]:
    ledger, entry = text.split(":")[:2]
    return int(ledger), int(entry)


def _default_url(url: str) -> str:
    """Where the admin API of a broker is by default."""
    found = urllib.parse.urlsplit(url)
    host = (found.hostname or "localhost") if found.netloc.count(",") == 0 else found.netloc.split(",")[0].split(":")[0]
    host = f"[{host}]" if ":" in host else host
    return f"https://{host}:8443" if found.scheme == "pulsar+ssl" else f"http://{host}:8080"
