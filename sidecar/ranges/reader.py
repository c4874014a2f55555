"""Reads topics of a subscription by position or time, without a group. Keeps nothing but the sizes of records."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import replace

from sidecar.brokers.base import Broker, LaneEnd, SeekTarget
from sidecar.model.clock import Clock
from sidecar.model.errors import BrokerError, NotFound, Removed, ResourceExhausted, Unknown
from sidecar.model.reasons import Reason
from sidecar.model.records import Chunk, Lane, Run
from sidecar.settings import SubscriptionSettings

#: bytes of one message to the reader, unless a single record is larger
FRAME_BYTES = 1 << 20
#: bytes of records that are read to measure their size
_SAMPLE_BYTES = 64 << 10
#: calls of `sizes` after which a few records are measured again, unless records are read here meanwhile
_SAMPLE_EVERY = 20
#: seconds between checks of the beginning of a lane while it is read and has gaps, which some brokers often have
_GAP_CHECK_INTERVAL = 5.0
#: the weight of the newest chunk in the average size of a lane's records
_WEIGHT = 0.2


def never() -> bool:
    """For a read that nobody interrupts."""
    return False


class LogReader:
    """Reads the topics of one subscription, whichever its mode."""

    def __init__(self, settings: SubscriptionSettings, broker: Broker, clock: Clock) -> None:
        self.settings = settings
        self._broker = broker
        self._clock = clock
        #: bytes of an average record of each lane
        self._sizes: dict[Lane, float] = {}
        #: by topic, calls of `sizes` since records of it were read
        self._sizes_age: dict[str, int] = {}

    async def locate(self, topics: Collection[str], target: SeekTarget) -> dict[Lane, int]:
        """The position of the target in each lane of the topics; without topics, of all topics of the subscription."""
        for topic in topics:
            await self._check(topic)
        found: dict[Lane, int] = {}
        for topic in topics or await self._broker.topics(self.settings.topics):
            found.update(await self._broker.locate(topic, target))
        return found

    async def locate_dead_letters(self, target: SeekTarget) -> Mapping[Lane, int]:
        """As `locate`, in the dead-letter topic, which has no lanes before the first dead letter."""
        try:
            return await self._broker.locate(self.settings.dead_letter_topic, target)
        except NotFound:
            return {}

    async def bounds(self, lane: Lane, run: Run) -> LaneEnd:
        """The ends of a lane, for a `read` of this run, as by `ends_for`. A run that stops beyond the end is read to
        the end of the lane, whether or not there are records at its last positions.

        Raises `Removed` if the run begins outside of the ends, `Unknown` for a topic that does not belong to the
        subscription or a lane that does not exist, and what `Broker.lane_ends` raises.
        """
        await self._check(lane.topic)
        end = await self.ends_for(lane, run.start, await self._end(lane))
        if run.start < min(end.start, run.stop):
            raise _removed(lane, run, end)
        return end

    async def ends_for(self, lane: Lane, position: int, end: LaneEnd) -> LaneEnd:
        """The ends of a lane for a reader at `position`, given those that the broker reports. Raises `Removed` if the
        lane was never written that far."""
        if position <= end.end:
            return end
        if position <= await self._broker.log_end(lane):
            # A consumer that does not wait for transactions has committed it: there is nothing to read yet.
            return replace(end, end=position)
        raise Removed(
            f"{lane} ends at {end.end}: there never was a position {position}, or the topic was recreated",
            end.start,
            end.end,
        )

    async def read(
        self, lane: Lane, run: Run, end: LaneEnd, max_bytes: int, interrupted: Callable[[], bool] = never
    ) -> AsyncIterator[Chunk]:
        """The records of a run, in order, in chunks of about 1 MiB and at most `max_bytes`. `end` is from `bounds`.

        Ends with the run or the lane, or after a chunk when `interrupted` says so: what was passed is checked then, and
        another read may continue there. Raises `Removed` if the broker has removed a part of the run or the lane has
        become shorter, `ResourceExhausted` for a record larger than `max_bytes`, and what `Broker.read` raises.
        """
        gaps = _Gaps(run)
        check_at = self._clock.now()
        try:
            async with aclosing(self._broker.read(lane, run, min(FRAME_BYTES, max_bytes))) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    gaps.pass_(chunk)
                    if gaps.found and self._clock.now() >= check_at:
                        # Not only at the end: by then retention may have passed records that were read in time.
                        gaps.check(lane, await self._end(lane))
                        check_at = self._clock.now() + _GAP_CHECK_INTERVAL
                    self._weigh(chunk)
                    _check_sizes(chunk, max_bytes)
                    yield chunk
                    if interrupted():
                        break
        except BrokerError:
            # If the next records were removed meanwhile, that is the better error.
            gaps.check(lane, await self._end(lane))
            raise
        if gaps.first < (stop := min(run.stop, end.end)):
            # There are no records at some positions: were they removed?
            now = await self._end(lane)
            gaps.check(lane, now)
            if now.end < stop:
                raise Removed(
                    f"{lane} ends at {now.end} now, and was to be read to {stop - 1}: the topic was recreated, or the "
                    "broker has lost records",
                    now.start,
                    now.end,
                )

    async def sizes(self, runs: Mapping[Lane, Run]) -> dict[Lane, int]:
        """Bytes of an average record of each lane. A lane that was never read counts as the average of its topic. If
        nothing of the topic was read, or nothing for long, a few records of one of its lanes are measured: others may
        read from other sidecars, and sizes change."""
        for topic in {lane.topic for lane in runs}:
            age = self._sizes_age.get(topic, _SAMPLE_EVERY)
            if age >= _SAMPLE_EVERY or not self._of_topic(topic):
                for lane, run in runs.items():
                    if lane.topic == topic and await self._sample(lane, run):
                        break
            else:
                self._sizes_age[topic] = age + 1
        return {lane: round(self._sizes.get(lane) or _average(self._of_topic(lane.topic))) for lane in runs}

    def _of_topic(self, topic: str) -> list[float]:
        return [size for lane, size in self._sizes.items() if lane.topic == topic]

    async def _sample(self, lane: Lane, run: Run) -> bool:
        """Measure the first records of a run, which may lie far behind its start. False if it has none."""
        async with aclosing(self._broker.read(lane, run, _SAMPLE_BYTES)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                # Earlier sizes are outdated.
                self._sizes = {other: size for other, size in self._sizes.items() if other.topic != lane.topic}
                self._weigh(chunk)
                return True
        return False

    async def _check(self, topic: str) -> None:
        settings = self.settings
        own = [settings.dead_letter_topic, settings.retry_topic]
        if topic in (*settings.topics, *own) or topic in await self._broker.topics(settings.topics):
            return
        known = ", ".join([*settings.topics, *own])
        raise Unknown(
            f'subscription {settings.name} has no topic "{topic}" to read; it has {known}', Reason.TOPIC_NOT_FOUND
        )

    async def _end(self, lane: Lane) -> LaneEnd:
        ends = await self._broker.lane_ends(lane.topic)
        if lane not in ends:
            text = f"topic {lane.topic} has no lane {lane.number}; it has {len(ends)}, counted from 0"
            raise Unknown(text, Reason.LANE_NOT_FOUND)
        return ends[lane]

    def _weigh(self, chunk: Chunk) -> None:
        if chunk.frames:
            size = chunk.ends[-1] / len(chunk.frames)
            self._sizes_age[chunk.lane.topic] = 0
            before = self._sizes.get(chunk.lane, size)
            self._sizes[chunk.lane] = before + _WEIGHT * (size - before)


def _average(sizes: list[float]) -> float:
    return sum(sizes) / len(sizes) if sizes else 1.0


class _Gaps:
    """Positions without a record between those that were read, since the lane was last checked."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._next = run.start
        #: the first position of the first gap; the position after the last record if there is none
        self.first = run.start
        self.found = False

    def pass_(self, chunk: Chunk) -> None:
        positions = chunk.positions
        if not self.found and positions[-1] - self._next >= len(positions):
            # The index of the first record after the gap.
            before = bisect_right(range(len(positions)), self._next, key=lambda index: positions[index] - index)
            self.found, self.first = True, self._next + before
        self._next = positions[-1] + 1
        if not self.found:
            self.first = self._next

    def check(self, lane: Lane, end: LaneEnd) -> None:
        """Raises `Removed` if the broker has removed records from the first gap on. If not, there never were records in
        the gaps so far."""
        if self.first < min(end.start, self._run.stop):
            raise _removed(lane, Run(self.first, self._run.stop), end)
        self.found, self.first = False, self._next


def _removed(lane: Lane, run: Run, end: LaneEnd) -> Removed:
    lost = min(run.stop, end.start)
    return Removed(
        f"{lane} begins at {end.start} now: the broker has removed {run.start} to {lost - 1} of what was to be read "
        f"({run.start} to {run.stop - 1})",
        end.start,
        end.end,
    )


def _check_sizes(chunk: Chunk, max_bytes: int) -> None:
    # Only a chunk of a single record may be larger than requested.
    if chunk.ends[-1] > max_bytes and len(chunk.frames) == 1:
        raise ResourceExhausted(
            f"the record at {chunk.positions[0]} of {chunk.lane} has {chunk.ends[-1]:,} bytes, which is more than "
            f"max_message_bytes, {max_bytes:,}: raise it, and the limit of your gRPC library",
            Reason.RECORD_TOO_LARGE,
            limit="max_message_bytes",
            max=max_bytes,
        )
