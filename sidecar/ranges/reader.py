"""Reading a topic by position or time, without a group: for any subscription, whichever its mode. Nothing is remembered
but the size of what was read."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing
from dataclasses import replace

from sidecar.brokers.base import Broker, LaneEnd, SeekTarget
from sidecar.model.clock import Clock
from sidecar.model.errors import BrokerError, Exhausted, NotFound, Removed, Unknown
from sidecar.model.records import Chunk, Lane, Run
from sidecar.settings import SubscriptionSettings

#: bytes of one message to the reader, unless a record is larger
FRAME_BYTES = 1 << 20
#: bytes of records that are read to learn their size
_SAMPLE_BYTES = 64 << 10
#: times that sizes are told before a few records are read again, unless somebody reads here meanwhile
_SAMPLE_EVERY = 20
#: seconds between looks at where a lane begins, while it is read and has gaps: some brokers have one at every turn
_LOOK_EVERY = 5.0
#: how much the newest read counts in the average size of a lane's records
_WEIGHT = 0.2


class LogReader:
    """The topics of one subscription as logs."""

    def __init__(self, settings: SubscriptionSettings, broker: Broker, clock: Clock) -> None:
        self.settings = settings
        self._broker = broker
        self._clock = clock
        #: bytes of an average record
        self._sizes: dict[Lane, float] = {}
        #: by topic, how often sizes were told since anything of it was read
        self._told: dict[str, int] = {}
        #: records that were given to readers
        self.delivered = 0

    async def locate(self, topics: Collection[str], target: SeekTarget) -> dict[Lane, int]:
        """Where the target is in each lane of the topics; without topics, of those of the subscription."""
        for topic in topics:
            await self._check(topic)
        found: dict[Lane, int] = {}
        for topic in topics or await self._broker.topics(self.settings.topics):
            found.update(await self._broker.locate(topic, target))
        return found

    async def locate_dead_letters(self, target: SeekTarget) -> Mapping[Lane, int]:
        """The same in the dead-letter topic, which has no lanes before the first dead letter."""
        try:
            return await self._broker.locate(self.settings.dead_letter_topic, target)
        except NotFound:
            return {}

    async def bounds(self, lane: Lane, run: Run) -> LaneEnd:
        """The ends of a lane of which a run is to be read, for `read`, as `ends_for` tells them. A run that stops
        behind them is read to the end of the lane, whether or not there is a record at its last positions.

        Raises `Removed` if the run begins outside of them, `Unknown` for a topic that is not the subscription's or a
        lane that it does not have, and what `Broker.lane_ends` raises.
        """
        await self._check(lane.topic)
        end = await self.ends_for(lane, run.start, await self._end(lane))
        if run.start < min(end.start, run.stop):
            raise _removed(lane, run, end)
        return end

    async def ends_for(self, lane: Lane, position: int, end: LaneEnd) -> LaneEnd:
        """The ends of a lane for a reader at `position`, from what the broker says they are. Raises `Removed` if the
        lane was never written so far."""
        if position <= end.end:
            return end
        if position <= await self._broker.log_end(lane):
            # Somebody who does not wait for transactions has put the group there: there is nothing to read yet.
            return replace(end, end=position)
        raise Removed(
            f"{lane} ends at {end.end}: there never was a position {position}, or the topic was made anew",
            end.start,
            end.end,
        )

    async def read(self, lane: Lane, run: Run, end: LaneEnd, max_bytes: int) -> AsyncIterator[list[bytes]]:
        """The frames of a run, in order, in lists of about 1 MiB and never above `max_bytes`. `end` is from `bounds`.

        Ends with the run or with the lane. Raises `Removed` if the broker has removed a part of it or the lane has
        become shorter, `Exhausted` for a record that is larger than `max_bytes`, and what `Broker.read` raises.
        """
        gaps = _Gaps(run)
        look_after = self._clock.now()
        try:
            async with aclosing(self._broker.read(lane, run, min(FRAME_BYTES, max_bytes))) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    gaps.pass_(chunk)
                    if gaps.found and self._clock.now() >= look_after:
                        # Not in the end alone: retention may have passed by then what was read here in time.
                        gaps.check(lane, await self._end(lane))
                        look_after = self._clock.now() + _LOOK_EVERY
                    self._weigh(chunk)
                    _check_sizes(chunk, max_bytes)
                    self.delivered += len(chunk.frames)
                    yield chunk.frames
        except BrokerError:
            # Perhaps because what was to be read next was removed meanwhile, which is the better reason.
            gaps.check(lane, await self._end(lane))
            raise
        if gaps.first < (stop := min(run.stop, end.end)):
            # There is no record at some positions. Was there one?
            now = await self._end(lane)
            gaps.check(lane, now)
            if now.end < stop:
                raise Removed(
                    f"{lane} ends at {now.end} by now, and was to be read to {stop - 1}: the topic was made anew, or "
                    "its broker has lost records",
                    now.start,
                    now.end,
                )

    async def sizes(self, runs: Mapping[Lane, Run]) -> dict[Lane, int]:
        """Bytes of an average record of these runs. A lane that was never read counts as the others of its topic do; if
        none was, or none for long, a few records of one lane are read for it: others may read from other sidecars,
        and records change in size."""
        for topic in {lane.topic for lane in runs}:
            told = self._told.get(topic, _SAMPLE_EVERY)
            if told >= _SAMPLE_EVERY or not self._of_topic(topic):
                for lane, run in runs.items():
                    if lane.topic == topic and await self._sample(lane, run):
                        break
            else:
                self._told[topic] = told + 1
        return {lane: round(self._sizes.get(lane) or _average(self._of_topic(lane.topic))) for lane in runs}

    def _of_topic(self, topic: str) -> list[float]:
        return [size for lane, size in self._sizes.items() if lane.topic == topic]

    async def _sample(self, lane: Lane, run: Run) -> bool:
        """The first records of a run; False if it has none. They may stand far behind its start."""
        async with aclosing(self._broker.read(lane, run, _SAMPLE_BYTES)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                # What was seen long ago says nothing of what comes now.
                self._sizes = {one: size for one, size in self._sizes.items() if one.topic != lane.topic}
                self._weigh(chunk)
                return True
        return False

    async def _check(self, topic: str) -> None:
        settings = self.settings
        own = [settings.dead_letter_topic, settings.retry_topic]
        if topic in (*settings.topics, *own) or topic in await self._broker.topics(settings.topics):
            return
        known = ", ".join([*settings.topics, *own])
        raise Unknown(f'subscription {settings.name} has no topic "{topic}" to read; it has {known}')

    async def _end(self, lane: Lane) -> LaneEnd:
        ends = await self._broker.lane_ends(lane.topic)
        if lane not in ends:
            raise Unknown(f"topic {lane.topic} has no lane {lane.number}; it has {len(ends)}, counted from 0")
        return ends[lane]

    def _weigh(self, chunk: Chunk) -> None:
        if chunk.frames:
            size = chunk.ends[-1] / len(chunk.frames)
            self._told[chunk.lane.topic] = 0
            before = self._sizes.get(chunk.lane, size)
            self._sizes[chunk.lane] = before + _WEIGHT * (size - before)


def _average(sizes: list[float]) -> float:
    return sum(sizes) / len(sizes) if sizes else 1.0


class _Gaps:
    """Where there was no record between those that were read, since the lane was last looked at."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._next = run.start
        #: the first position of the first gap; the position after the last record if there is none
        self.first = run.start
        self.found = False

    def pass_(self, chunk: Chunk) -> None:
        positions = chunk.positions
        if not self.found and positions[-1] - self._next >= len(positions):
            # So many stand where they would without a gap.
            before = bisect_right(range(len(positions)), self._next, key=lambda index: positions[index] - index)
            self.found, self.first = True, self._next + before
        self._next = positions[-1] + 1
        if not self.found:
            self.first = self._next

    def check(self, lane: Lane, end: LaneEnd) -> None:
        """Raises `Removed` if the broker has removed anything from the first gap on. If it has not, there never was a
        record in the gaps so far."""
        if self.first < min(end.start, self._run.stop):
            raise _removed(lane, Run(self.first, self._run.stop), end)
        self.found, self.first = False, self._next


def _removed(lane: Lane, run: Run, end: LaneEnd) -> Removed:
    lost = min(run.stop, end.start)
    return Removed(
        f"{lane} begins at {end.start} by now: the broker has removed {run.start} to {lost - 1} of what was to be read "
        f"({run.start} to {run.stop - 1})",
        end.start,
        end.end,
    )


def _check_sizes(chunk: Chunk, max_bytes: int) -> None:
    # A chunk is larger than what was asked for only if it is one record.
    if chunk.ends[-1] > max_bytes and len(chunk.frames) == 1:
        raise Exhausted(
            f"the record at {chunk.positions[0]} of {chunk.lane} has {chunk.ends[-1]:,} bytes, which is more than "
            f"max_message_bytes, {max_bytes:,}: take larger messages, and tell your gRPC library so"
        )
