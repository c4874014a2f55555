"""Where lanes start: by their stored position, if they are new, and if their topic was deleted and recreated."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.kafka.admin import NO_ID, Topic
from sidecar.brokers.kafka.commit_metadata import Stamp, encode
from sidecar.brokers.kafka.consumer.start_position import (
    OffsetLookup,
    StartPosition,
    recovery_position,
    start_position,
)
from sidecar.brokers.kafka.offset_client import StoredPosition
from sidecar.brokers.kafka.options import OutOfRange
from sidecar.model.errors import NotFound
from sidecar.model.records import Commit, Lane, Run

ONE, OTHER = Lane("orders", 0), Lane("orders", 1)

STAMP = Stamp("cluster", "topic")
BEYOND = (Run(12, 15), Run(20, 21))
TEXT = encode(STAMP, Commit(10, BEYOND))


def start(position: int, end: LaneEnd, out_of_range: OutOfRange = OutOfRange.EARLIEST, text: str = "") -> StartPosition:
    return start_position(StoredPosition(position, text), STAMP, end, out_of_range, first=False)


def test_a_lane_starts_where_the_group_was_with_the_acks_beyond() -> None:
    assert start(10, LaneEnd(0, 30), text=TEXT) == StartPosition(10, BEYOND, False, LaneEnd(0, 30), 10)


def test_a_lane_whose_position_was_removed_continues_at_its_start_and_counts_lost_records() -> None:
    # 10 and 11 were never delivered; of 12 to 17 three were settled.
    assert start(10, LaneEnd(18, 30), text=TEXT) == StartPosition(10, BEYOND, False, LaneEnd(18, 30), 18, lost=5)


def test_a_lane_whose_position_was_removed_continues_at_its_end_if_that_is_configured() -> None:
    assert start(10, LaneEnd(18, 30), OutOfRange.LATEST) == StartPosition(10, (), False, LaneEnd(18, 30), 30, lost=20)


@pytest.mark.parametrize(("out_of_range", "at"), [(OutOfRange.EARLIEST, 0), (OutOfRange.LATEST, 5)])
def test_a_position_beyond_the_end_belongs_to_another_log(out_of_range: OutOfRange, at: int) -> None:
    assert start(10, LaneEnd(0, 5), out_of_range, TEXT) == StartPosition(at, (), False, LaneEnd(0, 5), at)


def test_a_position_at_either_end_is_in_the_lane() -> None:
    for position in (3, 9):
        assert start(position, LaneEnd(3, 9)).position == position
        assert recovery_position(position, LaneEnd(3, 9), OutOfRange.EARLIEST).position == position


def test_a_lane_that_lost_its_position_resumes_and_counts_lost_records() -> None:
    assert recovery_position(10, LaneEnd(18, 30), OutOfRange.EARLIEST) == StartPosition(
        10, (), False, LaneEnd(18, 30), 18, lost=8
    )
    assert recovery_position(10, LaneEnd(0, 5), OutOfRange.EARLIEST) == StartPosition(10, (), False, LaneEnd(0, 5), 0)


class Kafka:
    """Stands in for a cluster: one topic, or a few that are equal."""

    def __init__(self, *consumed: str) -> None:
        self.cluster = "cluster"
        self.id = "first"
        self.existing = {"orders"}
        self.lanes = 2
        self.end = LaneEnd(0, 400)
        self.has_members = False
        self.committed: dict[Lane, StoredPosition] = {}
        self._spec = SourceSpec("billing", consumed or ("orders",))
        self.sidecar = self.new_sidecar()

    def new_sidecar(self) -> OffsetLookup:
        me: Any = self
        return OffsetLookup(self._spec, me, me, OutOfRange.EARLIEST, self._pin)

    def recreate_topic(self, records: int = 400) -> None:
        self.id, self.end = "second", LaneEnd(0, records)

    def commit(self, lane: Lane, commit: Commit) -> None:
        """As the sidecar does."""
        self.committed[lane] = StoredPosition(commit.position, self.sidecar.metadata(lane, commit))

    def pin_ends(self) -> None:
        asyncio.run(self.sidecar.pin_ends())

    def start(self, lane: Lane = ONE) -> StartPosition:
        return asyncio.run(self.sidecar.start_positions([lane]))[lane]

    def recover(self, position: int) -> StartPosition:
        return asyncio.run(self.sidecar.recovery_position(ONE, position))

    async def _pin(self, offsets: Mapping[Lane, tuple[int, str]]) -> None:
        self.committed |= {lane: StoredPosition(*each) for lane, each in offsets.items()}

    async def topics(self, names: Collection[str]) -> dict[str, Topic]:
        return {name: Topic(name, self.id, self.lanes) for name in names if name in self.existing}

    async def matching(self, wanted: Collection[str]) -> set[str]:
        by_pattern = self.existing if any(name.startswith("^") for name in wanted) else set()
        return by_pattern | {name for name in wanted if not name.startswith("^")}

    async def pin(self, positions: Mapping[Lane, int]) -> None:
        if not self.has_members:
            self.committed |= {lane: StoredPosition(position, "") for lane, position in positions.items()}

    async def ids(self, names: Collection[str]) -> dict[str, str]:
        return dict.fromkeys(names, self.id)

    async def ends(self, lanes: Iterable[Lane]) -> dict[Lane, LaneEnd]:
        return dict.fromkeys(lanes, self.end)

    async def written_ends(self, lanes: Iterable[Lane]) -> dict[Lane, int]:
        return dict.fromkeys(lanes, self.end.end)

    async def stored(self, lanes: Collection[Lane]) -> dict[Lane, StoredPosition]:
        return {lane: self.committed[lane] for lane in lanes if lane in self.committed}


def test_a_position_of_a_deleted_topic_is_not_used_in_the_recreated_one() -> None:
    """It was committed after the topic was recreated, whose end is beyond it by now."""
    kafka = Kafka()
    assert kafka.start().topic_id == "first"
    kafka.recreate_topic()
    kafka.commit(ONE, Commit(150))
    assert kafka.start() == StartPosition(0, (), False, LaneEnd(0, 400), 0)
    assert kafka.committed[ONE].position == 0


def test_nor_by_a_sidecar_that_has_never_seen_the_deleted_topic() -> None:
    kafka = Kafka()
    kafka.start()
    kafka.recreate_topic()
    kafka.commit(ONE, Commit(150, (Run(160, 170),)))
    kafka.sidecar = kafka.new_sidecar()
    assert kafka.start() == StartPosition(0, (), False, LaneEnd(0, 400), 0)


def test_nor_where_kafka_had_no_room_for_metadata() -> None:
    kafka = Kafka()
    kafka.start()
    kafka.recreate_topic()
    kafka.committed[ONE] = StoredPosition(150, "")
    assert kafka.start().position == 0


def test_lanes_of_the_deleted_topic_are_still_committed_for_it() -> None:
    """One lane of the recreated topic starts before the other learns that its own is gone."""
    kafka = Kafka()
    kafka.start(ONE)
    kafka.start(OTHER)
    kafka.recreate_topic()
    kafka.start(ONE)
    kafka.commit(OTHER, Commit(150))
    assert kafka.start(OTHER).position == 0


def test_a_commit_for_the_recreated_topic_counts_for_a_sidecar_that_has_seen_the_deleted_one() -> None:
    kafka = Kafka()
    kafka.start()
    kafka.recreate_topic()
    kafka.committed[ONE] = StoredPosition(150, encode(Stamp("cluster", "second"), Commit(150)))
    assert kafka.start().position == 150


def test_in_the_recreated_topic_the_group_continues_where_it_was() -> None:
    kafka = Kafka()
    kafka.start()
    kafka.recreate_topic()
    kafka.start()
    kafka.commit(ONE, Commit(70, (Run(80, 90),)))
    for _ in range(2):
        assert kafka.start() == StartPosition(70, (Run(80, 90),), False, LaneEnd(0, 400), 70)
        kafka.sidecar = kafka.new_sidecar()


def test_positions_without_metadata_are_used() -> None:
    """Those of earlier versions, and of tools."""
    kafka = Kafka()
    kafka.committed[ONE] = StoredPosition(150, "")
    assert kafka.start().position == 150


def test_positions_that_were_copied_from_another_cluster_are_used() -> None:
    kafka = Kafka()
    kafka.committed[ONE] = StoredPosition(150, encode(Stamp("another", "topic"), Commit(150)))
    assert kafka.start().position == 150


def test_the_first_position_of_a_lane_is_stored_with_its_topic() -> None:
    kafka = Kafka()
    kafka.start()
    kafka.recreate_topic()
    kafka.sidecar = kafka.new_sidecar()
    kafka.committed[ONE] = kafka.committed[ONE]._replace(position=0)
    assert kafka.start() == StartPosition(0, (), False, LaneEnd(0, 400), 0)


def test_where_topics_have_no_ids_no_metadata_is_stored() -> None:
    kafka = Kafka()
    kafka.id = NO_ID
    kafka.start()
    kafka.commit(ONE, Commit(150, (Run(160, 170),)))
    assert kafka.committed[ONE] == StoredPosition(150, "")
    assert kafka.start().position == 150


def test_a_group_that_started_at_the_end_reads_a_recreated_topic_from_its_start() -> None:
    kafka = Kafka()
    kafka.pin_ends()
    assert kafka.start().position == 400
    kafka.recreate_topic()
    kafka.committed.clear()
    assert kafka.start().position == 0


def test_a_lane_whose_position_is_lost_in_a_recreated_topic_starts_anew() -> None:
    kafka = Kafka()
    kafka.start()
    kafka.recreate_topic(100)
    recovered = kafka.recover(150)
    assert recovered == StartPosition(0, (), False, LaneEnd(0, 100), 0)
    assert recovered.topic_id == "second"
    kafka.commit(ONE, Commit(70))
    kafka.sidecar = kafka.new_sidecar()
    assert kafka.start().position == 70


def test_lanes_that_started_in_a_topic_that_was_recreated_since_are_found() -> None:
    kafka = Kafka()
    kafka.start(ONE)
    assert asyncio.run(kafka.sidecar.recreated([ONE, OTHER])) == []
    kafka.recreate_topic()
    kafka.start(OTHER)
    assert asyncio.run(kafka.sidecar.recreated([ONE, OTHER])) == [ONE]


def test_a_topic_that_is_missing_for_a_moment_is_waited_for() -> None:
    """It may be about to be recreated."""
    kafka = Kafka()
    kafka.committed[ONE] = StoredPosition(150, "")
    kafka.existing.clear()
    with pytest.raises(NotFound):
        kafka.start()
    with pytest.raises(NotFound):
        kafka.recover(150)


def test_a_topic_that_is_created_after_a_group_started_at_the_end_is_read_from_its_start() -> None:
    kafka = Kafka("orders", "returns", "^all")
    kafka.pin_ends()
    kafka.existing |= {"returns", "all-sorts"}
    assert kafka.start(Lane("returns", 0)).position == kafka.start(Lane("all-sorts", 0)).position == 0
    assert kafka.start().position == 400


def test_so_is_a_topic_of_a_pattern_that_was_created_while_no_sidecar_ran() -> None:
    kafka = Kafka("^.*")
    kafka.pin_ends()
    kafka.existing.add("returns")
    kafka.sidecar = kafka.new_sidecar()
    kafka.pin_ends()
    assert kafka.start(Lane("returns", 0)).position == 0
    assert kafka.start().position == 400


def test_so_is_a_topic_that_was_created_before_the_sidecar_joined_again() -> None:
    kafka = Kafka("orders", "returns")
    kafka.pin_ends()
    kafka.existing.add("returns")
    kafka.pin_ends()
    assert kafka.start(Lane("returns", 0)).position == 0


def test_a_topic_that_is_newly_named_in_a_group_with_members_starts_at_the_end_in_all_its_lanes() -> None:
    kafka = Kafka("orders", "returns")
    kafka.existing.add("returns")
    kafka.committed[ONE] = StoredPosition(150, "")
    kafka.has_members = True
    kafka.pin_ends()
    assert kafka.start(Lane("returns", 0)).position == kafka.start(Lane("returns", 1)).position == 400
    assert kafka.start().position == 150


def test_a_lane_that_was_added_since_is_read_from_its_start() -> None:
    kafka = Kafka()
    kafka.pin_ends()
    kafka.lanes = 3
    assert kafka.start(Lane("orders", 2)).position == 0
    kafka.sidecar = kafka.new_sidecar()
    kafka.pin_ends()
    assert kafka.start(Lane("orders", 2)).position == 0


def test_a_lane_of_a_topic_that_was_recreated_before_it_started_is_read_from_its_start() -> None:
    kafka = Kafka()
    kafka.has_members = True
    kafka.pin_ends()
    kafka.recreate_topic()
    assert kafka.start(OTHER).position == 0


def test_a_lane_whose_position_somebody_deleted_is_read_from_its_start() -> None:
    kafka = Kafka()
    kafka.pin_ends()
    kafka.start()
    kafka.committed.clear()
    assert kafka.start().position == 0
