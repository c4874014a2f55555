"""Moving the library about in the lanes: pausing, resuming, placing. On the poll thread, between two polls."""

from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import Consumer, KafkaException

from sidecar.brokers.base import Advanced, LaneEnd, Trouble
from sidecar.brokers.kafka.lanes import Phase, Reading
from sidecar.brokers.kafka.poll_buffer import Shelf
from sidecar.brokers.kafka.starting import Beginning
from sidecar.brokers.kafka.waste import Waste
from sidecar.model.records import Assigned, Lane


class Steering:
    """Every lane goes on exactly where the core is in it, whatever the library discards or fetches again.

    A pause discards what was fetched of the lane, and what the library takes for its position then is not ours. So
    after everything that stops a lane it is put to our own `next`.
    """

    def __init__(self, readings: Mapping[Lane, Reading], shelf: Shelf, waste: Waste) -> None:
        self._readings = readings
        self._shelf = shelf
        self._waste = waste
        self.consumer: Consumer

    def pause(self, lanes: Iterable[Lane]) -> None:
        for reading in self._known(lanes):
            if reading.paused:
                continue
            if reading.flows:
                self.consumer.pause([reading.partition])
            reading.paused = True
            if reading.phase is Phase.ACTIVE:
                self._give_back(reading)

    def resume(self, lanes: Iterable[Lane]) -> None:
        for reading in self._known(lanes):
            if reading.paused:
                reading.paused = False
                reading.put_to(reading.next)
        self.mend()

    def note_ends(self, ends: Mapping[Lane, LaneEnd]) -> None:
        """Asked of Kafka: of lanes that nothing is fetched of, the library hears no news."""
        for reading in self._known(ends):
            if reading.end is not None:
                end = ends[reading.lane]
                reading.end = LaneEnd(max(end.start, reading.end.start), max(end.end, reading.end.end))

    def hold(self) -> None:
        """Let nothing flow for now, whatever the core wants."""
        flowing = [reading for reading in self._readings.values() if reading.flows]
        if flowing:
            self.consumer.pause([reading.partition for reading in flowing])
        for reading in flowing:
            reading.held = True

    def let_go(self) -> None:
        for reading in self._readings.values():
            if reading.held:
                reading.held = False
                reading.put_to(reading.next)
        self.mend()

    def begin(self, beginnings: Mapping[Reading, Beginning]) -> dict[Lane, LaneEnd]:
        """It is known where lanes start. Answers their ends."""
        ends: dict[Lane, LaneEnd] = {}
        for reading, beginning in beginnings.items():
            if self._readings.get(reading.lane) is not reading or reading.phase is not Phase.ARRIVING:
                continue
            reading.phase = Phase.ACTIVE
            reading.end = ends[reading.lane] = beginning.end
            self._shelf.resume([reading.lane])
            self._shelf.tell(Assigned(reading.lane, beginning.start, beginning.settled, beginning.first))
            self._skip(reading, beginning)
            self._place(reading, beginning.at)
        return ends

    def restart(self, reading: Reading, beginning: Beginning) -> None:
        """It is known where a lane goes on whose position was not there any more."""
        if self._readings.get(reading.lane) is not reading or reading.phase is not Phase.STUCK:
            return
        reading.phase, reading.end = Phase.ACTIVE, beginning.end
        if beginning.at < reading.next:
            self._shelf.forget([reading.lane])
            self._shelf.tell(Assigned(reading.lane, beginning.at))
        self._skip(reading, beginning)
        self._place(reading, beginning.at)

    def move(self, positions: Mapping[Lane, int], moved: Callable[[], None]) -> None:
        """Seek. Kafka has the positions already."""
        for reading in self._known(positions):
            if reading.phase not in (Phase.ACTIVE, Phase.STUCK):
                continue
            position = positions[reading.lane]
            self._shelf.forget([reading.lane])
            self._shelf.tell(Assigned(reading.lane, position))
            reading.phase = Phase.ACTIVE
            self._place(reading, position)
        moved()

    def mend(self) -> None:
        """Put lanes that are astray to where the core is in them, and let them flow."""
        for reading in [reading for reading in self._readings.values() if reading.astray]:
            if reading.phase is not Phase.ACTIVE or reading.paused:
                continue
            reading.astray = False
            try:
                self.consumer.seek(reading.at(reading.next))
            except KafkaException:
                # It does not seek before a lane has begun, nor after an error.
                self._assign(reading)
            self._let_flow(reading)

    def _give_back(self, reading: Reading) -> None:
        """Let go of what is on the shelf: it would take the room of others."""
        start = self._shelf.withdraw(reading.lane)
        if start is not None:
            self._waste.took(reading.lane, start - reading.next)
            # This may happen within a poll, which has more of the lane in its hands already. Before that, what was
            # given back would look like a gap, and be taken for settled: nothing counts until the library is put back.
            reading.put_to(start)

    def _place(self, reading: Reading, position: int) -> None:
        reading.put_to(position)
        reading.astray = False
        self._assign(reading)
        self._let_flow(reading)

    def _assign(self, reading: Reading) -> None:
        """Give the lane to the library anew. A seek would not do: it does not end what is under way before it."""
        self.consumer.incremental_unassign([reading.partition])
        self.consumer.incremental_assign([reading.at(reading.next)])

    def _let_flow(self, reading: Reading) -> None:
        if reading.flows:
            self.consumer.resume([reading.partition])
        else:
            self.consumer.pause([reading.partition])

    def _skip(self, reading: Reading, beginning: Beginning) -> None:
        if beginning.at > beginning.start:
            self._shelf.tell(Advanced(reading.lane, beginning.at, beginning.lost))
        if beginning.lost:
            reading.lost += beginning.lost
            text = (
                f"{reading.lost:,} records of {reading.lane} were removed by the broker's retention before they could "
                f"be read: it went on at {beginning.at}"
            )
            self._shelf.tell(Trouble(f"skipped in {reading.lane}", text))

    def _known(self, lanes: Iterable[Lane]) -> list[Reading]:
        return [self._readings[lane] for lane in lanes if lane in self._readings]
