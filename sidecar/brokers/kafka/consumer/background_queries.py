"""What the event loop asks of Kafka for the poll thread, which must not wait for answers."""

import asyncio
import contextlib
from collections.abc import Callable, Collection

from sidecar.brokers.base import Trouble
from sidecar.brokers.kafka.admin import Admin
from sidecar.brokers.kafka.consumer.commits import CommitRequest
from sidecar.brokers.kafka.consumer.poll_thread import PollThread
from sidecar.brokers.kafka.consumer.position_control import LaneReader
from sidecar.brokers.kafka.consumer.start_position import OffsetLookup
from sidecar.brokers.kafka.offset_client import OffsetClient
from sidecar.brokers.kafka.poll_buffer import PollBuffer
from sidecar.model.errors import BrokerError
from sidecar.model.records import Lane
from sidecar.observability.logs import Log

log = Log("kafka")

#: seconds between tries while the broker does not answer
_RETRY_INTERVAL = 0.5
#: seconds between queries whether Kafka has a commit
_COMMIT_INTERVAL = 0.02
#: seconds between queries of the ends of paused lanes
_PAUSED_ENDS_INTERVAL = 5.0
#: seconds between checks whether topics were recreated
_TOPICS_INTERVAL = 5.0


class BackgroundQueries:
    """Each query is repeated until it succeeds or its result is no longer needed."""

    def __init__(
        self,
        lookup: OffsetLookup,
        offset_client: OffsetClient,
        admin: Admin,
        buffer: PollBuffer,
        poll_thread: Callable[[], PollThread],
    ) -> None:
        self._lookup = lookup
        self._offset_client = offset_client
        self._admin = admin
        self._buffer = buffer
        self._poll_thread = poll_thread

    async def resolve_starts(self, readers: Collection[LaneReader]) -> None:
        """Find out where assigned lanes start."""
        trouble = f"start of {', '.join(str(reader.lane) for reader in readers)}"
        failed = False
        left = {reader.lane: reader for reader in readers}
        while left := {lane: reader for lane, reader in left.items() if self._poll_thread().has(reader)}:
            error = await self._resolve(left, [*left])
            if error is not None:
                failed = True
                self._buffer.add_event(Trouble(trouble, f"cannot find out where lanes start: {error}"))
                await asyncio.sleep(_RETRY_INTERVAL)
        if failed:
            self._buffer.add_event(Trouble(trouble, ""))

    async def _resolve(self, left: dict[Lane, LaneReader], lanes: Collection[Lane]) -> BrokerError | None:
        """Start these lanes and remove them from those that are left. Returns the error of lanes that failed."""
        try:
            starts = await self._lookup.start_positions(lanes)
        except BrokerError as error:
            if len(lanes) == 1:
                return error
            try:
                await self._admin.connect()
            except BrokerError:
                return error
            # The cluster answers, so one lane may have no leader: it must not keep the others from starting.
            return next(filter(None, await asyncio.gather(*(self._resolve(left, [lane]) for lane in lanes))), None)
        self._poll_thread().start_lanes({left.pop(lane): start for lane, start in starts.items()})
        return None

    async def recover_position(self, reader: LaneReader) -> None:
        """Find out where a lane resumes whose position no longer exists."""
        while self._poll_thread().has(reader):
            try:
                start = await self._lookup.recovery_position(reader.lane, reader.next)
            except BrokerError as error:
                log.warning("cannot find out where to resume", lane=reader.lane, error=error)
                await asyncio.sleep(_RETRY_INTERVAL)
                continue
            self._poll_thread().recover(reader, start)
            break

    async def confirm_commit(self, request: CommitRequest) -> None:
        """Find out whether Kafka has a commit. Also if it was cancelled: other commits wait for it."""
        sent = request.sent
        while not request.done and request.sent is sent:
            with contextlib.suppress(BrokerError):
                stored = await self._offset_client.stored(sent.keys())
                if all(stored.get(lane) == each for lane, each in sent.items()):
                    self._poll_thread().confirm(request, sent)
                    return
            await asyncio.sleep(_COMMIT_INTERVAL)

    async def check_commit(self, request: CommitRequest, lanes: Collection[Lane]) -> None:
        """Find out which positions Kafka has of these lanes of a commit that waits to be sent."""
        while not request.done:
            with contextlib.suppress(BrokerError):
                stored = await self._offset_client.stored(lanes)
                self._poll_thread().checked(request, {lane: each.position for lane, each in stored.items()})
                return
            await asyncio.sleep(_COMMIT_INTERVAL)

    async def watch_paused_ends(self, paused: set[Lane]) -> None:
        """Runs forever. Keeps the ends of paused lanes up to date, since their lag grows, too."""
        while True:
            await asyncio.sleep(_PAUSED_ENDS_INTERVAL)
            paused.intersection_update(self._poll_thread().ends)
            if paused:
                with contextlib.suppress(BrokerError):
                    self._poll_thread().update_ends(await self._admin.ends(paused))

    async def watch_topics(self) -> None:
        """Runs forever. Restarts the lanes of topics that were deleted and recreated.

        With the protocol `classic` nobody may report that: members know a topic by its name, and the library continues
        in the new one where it was in the old one.
        """
        while True:
            await asyncio.sleep(_TOPICS_INTERVAL)
            with contextlib.suppress(BrokerError):
                # Never ask a broker that is starting for ids: the library may not survive its response.
                await self._admin.connect()
                recreated = await self._lookup.recreated([*self._poll_thread().ends])
                if recreated:
                    self._poll_thread().restart_lanes(recreated)
