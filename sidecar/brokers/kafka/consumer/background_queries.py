"""What the event loop finds out for the poll thread, which must not wait for it."""

import asyncio
import contextlib
from collections.abc import Callable, Collection

from sidecar.brokers.base import Trouble
from sidecar.brokers.kafka.admin import Admin
from sidecar.brokers.kafka.consumer.commits import Request
from sidecar.brokers.kafka.consumer.poll_thread import Member
from sidecar.brokers.kafka.consumer.start_position import Locating
from sidecar.brokers.kafka.lanes import Reading
from sidecar.brokers.kafka.offset_client import Clerk
from sidecar.brokers.kafka.poll_buffer import Shelf
from sidecar.model.errors import BrokerError
from sidecar.model.records import Lane
from sidecar.observability.logs import Log

log = Log("kafka")

#: seconds between tries while the broker cannot be asked
_AGAIN = 0.5
#: seconds between looks whether Kafka has a commit
_LOOK = 0.02
#: seconds between looks at the ends of lanes that are paused
_LOOK_AT_PAUSED = 5.0
#: seconds between looks whether topics are those that they were
_LOOK_AT_TOPICS = 5.0


class Errands:
    """Each is tried until it is done or nobody wants it any more."""

    def __init__(
        self, locating: Locating, clerk: Clerk, admin: Admin, shelf: Shelf, member: Callable[[], Member]
    ) -> None:
        self._locating = locating
        self._clerk = clerk
        self._admin = admin
        self._shelf = shelf
        self._member = member

    async def welcome(self, readings: Collection[Reading]) -> None:
        """Find out where lanes start that were assigned."""
        trouble = f"start of {', '.join(str(reading.lane) for reading in readings)}"
        failed = False
        left = {reading.lane: reading for reading in readings}
        while left := {lane: reading for lane, reading in left.items() if self._member().has(reading)}:
            error = await self._start(left, [*left])
            if error is not None:
                failed = True
                self._shelf.tell(Trouble(trouble, f"where lanes start is not known: {error}"))
                await asyncio.sleep(_AGAIN)
        if failed:
            self._shelf.tell(Trouble(trouble, ""))

    async def _start(self, left: dict[Lane, Reading], lanes: Collection[Lane]) -> BrokerError | None:
        """Begin these lanes and take them out of those that are left. Answers why some could not be."""
        try:
            found = await self._locating.beginnings(lanes)
        except BrokerError as error:
            if len(lanes) == 1:
                return error
            try:
                await self._admin.connect()
            except BrokerError:
                return error
            # The cluster answers, so one lane may have no leader: it must not keep the others from starting.
            return next(filter(None, await asyncio.gather(*(self._start(left, [lane]) for lane in lanes))), None)
        self._member().begin({left.pop(lane): beginning for lane, beginning in found.items()})
        return None

    async def lead_back(self, reading: Reading) -> None:
        """Find out where a lane goes on whose position is not there any more."""
        while self._member().has(reading):
            try:
                found = await self._locating.goes_on(reading.lane, reading.next)
            except BrokerError as error:
                log.warning("where to go on is not known", lane=reading.lane, error=error)
                await asyncio.sleep(_AGAIN)
                continue
            self._member().restart(reading, found)
            break

    async def confirm(self, request: Request) -> None:
        """Look whether Kafka has a commit. Also when nobody waits for it any more: others wait for their turn."""
        told = request.told
        while not request.over and request.told is told:
            with contextlib.suppress(BrokerError):
                stored = await self._clerk.stored(told)
                if all(stored.get(lane) == each for lane, each in told.items()):
                    self._member().confirm(request, told)
                    return
            await asyncio.sleep(_LOOK)

    async def look_at(self, paused: set[Lane]) -> None:
        """For ever: the lag of lanes that are paused grows, too."""
        while True:
            await asyncio.sleep(_LOOK_AT_PAUSED)
            paused.intersection_update(self._member().ends)
            if paused:
                with contextlib.suppress(BrokerError):
                    self._member().note_ends(await self._admin.ends(paused))

    async def look_at_topics(self) -> None:
        """For ever: of a topic that was deleted and made again at once, nobody may be told. Members that share out
        among themselves know it by its name, and the library goes on in it where it was in the one before."""
        while True:
            await asyncio.sleep(_LOOK_AT_TOPICS)
            with contextlib.suppress(BrokerError):
                # A broker that is just starting is not asked for ids: the library may not survive its answer.
                await self._admin.connect()
                remade = await self._locating.remade([*self._member().ends])
                if remade:
                    self._member().begin_anew(remade)
