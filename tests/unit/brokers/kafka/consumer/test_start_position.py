"""Where lanes start: those that are new, and those whose topic may have been deleted and made again under its name."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.kafka.admin import NO_ID, Topic
from sidecar.brokers.kafka.consumer.start_position import Locating
from sidecar.brokers.kafka.metadata import Stamp, encode
from sidecar.brokers.kafka.offset_client import Stored
from sidecar.brokers.kafka.options import OutOfRange
from sidecar.brokers.kafka.starting import Beginning
from sidecar.model.errors import NotFound
from sidecar.model.records import Commit, Lane, Run

ONE, OTHER = Lane("orders", 0), Lane("orders", 1)


class Kafka:
    """A cluster with one topic, or a few that are alike, and all that is asked of it."""

    def __init__(self, *consumed: str) -> None:
        self.cluster = "cluster"
        self.id = "first"
        self.existing = {"orders"}
        self.lanes = 2
        self.end = LaneEnd(0, 400)
        self.has_members = False
        self.committed: dict[Lane, Stored] = {}
        self._spec = SourceSpec("billing", consumed or ("orders",))
        self.sidecar = self.new_sidecar()

    def new_sidecar(self) -> Locating:
        me: Any = self
        return Locating(self._spec, me, me, OutOfRange.EARLIEST, self._pin)

    def make_again(self, records: int = 400) -> None:
        self.id, self.end = "second", LaneEnd(0, records)

    def commits(self, lane: Lane, commit: Commit) -> None:
        """As the sidecar does."""
        self.committed[lane] = Stored(commit.position, self.sidecar.metadata(lane, commit))

    def starts_at_end(self) -> None:
        asyncio.run(self.sidecar.pin_ends())

    def begins(self, lane: Lane = ONE) -> Beginning:
        return asyncio.run(self.sidecar.beginnings([lane]))[lane]

    def goes_on(self, position: int) -> Beginning:
        return asyncio.run(self.sidecar.goes_on(ONE, position))

    async def _pin(self, offsets: Mapping[Lane, tuple[int, str]]) -> None:
        self.committed |= {lane: Stored(*each) for lane, each in offsets.items()}

    async def topics(self, names: Collection[str]) -> dict[str, Topic]:
        return {name: Topic(name, self.id, self.lanes) for name in names if name in self.existing}

    async def fitting(self, wanted: Collection[str]) -> set[str]:
        by_pattern = self.existing if any(name.startswith("^") for name in wanted) else set()
        return by_pattern | {name for name in wanted if not name.startswith("^")}

    async def pin(self, positions: Mapping[Lane, int]) -> None:
        if not self.has_members:
            self.committed |= {lane: Stored(position, "") for lane, position in positions.items()}

    async def ids(self, names: Collection[str]) -> dict[str, str]:
        return dict.fromkeys(names, self.id)

    async def ends(self, lanes: Iterable[Lane]) -> dict[Lane, LaneEnd]:
        return dict.fromkeys(lanes, self.end)

    async def written(self, lanes: Iterable[Lane]) -> dict[Lane, int]:
        return dict.fromkeys(lanes, self.end.end)

    async def stored(self, lanes: Collection[Lane]) -> dict[Lane, Stored]:
        return {lane: self.committed[lane] for lane in lanes if lane in self.committed}


def test_a_position_of_the_topic_before_is_no_position_of_the_one_that_was_made_again() -> None:
    """It was committed after the new one was there, and that has passed it since."""
    kafka = Kafka()
    kafka.begins()
    kafka.make_again()
    kafka.commits(ONE, Commit(150))
    assert kafka.begins() == Beginning(0, (), False, LaneEnd(0, 400), 0)
    assert kafka.committed[ONE].position == 0


def test_nor_is_it_for_a_sidecar_that_has_never_seen_the_topic_before() -> None:
    kafka = Kafka()
    kafka.begins()
    kafka.make_again()
    kafka.commits(ONE, Commit(150, (Run(160, 170),)))
    kafka.sidecar = kafka.new_sidecar()
    assert kafka.begins() == Beginning(0, (), False, LaneEnd(0, 400), 0)


def test_nor_where_kafka_had_no_room_for_the_text() -> None:
    kafka = Kafka()
    kafka.begins()
    kafka.make_again()
    kafka.committed[ONE] = Stored(150, "")
    assert kafka.begins().at == 0


def test_lanes_of_the_topic_before_are_still_committed_for_that_one() -> None:
    """One lane of the new topic begins before the other is told that its own is gone."""
    kafka = Kafka()
    kafka.begins(ONE)
    kafka.begins(OTHER)
    kafka.make_again()
    kafka.begins(ONE)
    kafka.commits(OTHER, Commit(150))
    assert kafka.begins(OTHER).at == 0


def test_what_was_committed_for_the_new_topic_counts_also_for_who_has_seen_the_one_before() -> None:
    kafka = Kafka()
    kafka.begins()
    kafka.make_again()
    kafka.committed[ONE] = Stored(150, encode(Stamp("cluster", "second"), Commit(150)))
    assert kafka.begins().at == 150


def test_in_the_new_topic_the_group_goes_on_where_it_is() -> None:
    kafka = Kafka()
    kafka.begins()
    kafka.make_again()
    kafka.begins()
    kafka.commits(ONE, Commit(70, (Run(80, 90),)))
    for _ in range(2):
        assert kafka.begins() == Beginning(70, (Run(80, 90),), False, LaneEnd(0, 400), 70)
        kafka.sidecar = kafka.new_sidecar()


def test_positions_without_a_text_are_believed() -> None:
    """Of sidecars before this one, and of tools."""
    kafka = Kafka()
    kafka.committed[ONE] = Stored(150, "")
    assert kafka.begins().at == 150


def test_positions_that_were_copied_from_another_cluster_are_believed() -> None:
    kafka = Kafka()
    kafka.committed[ONE] = Stored(150, encode(Stamp("another", "topic"), Commit(150)))
    assert kafka.begins().at == 150


def test_a_new_lane_is_pinned_with_the_topic_that_it_is_in() -> None:
    kafka = Kafka()
    kafka.begins()
    kafka.make_again()
    kafka.sidecar = kafka.new_sidecar()
    kafka.committed[ONE] = kafka.committed[ONE]._replace(position=0)
    assert kafka.begins() == Beginning(0, (), False, LaneEnd(0, 400), 0)


def test_where_topics_have_no_ids_nothing_is_written_beside_a_position() -> None:
    kafka = Kafka()
    kafka.id = NO_ID
    kafka.begins()
    kafka.commits(ONE, Commit(150, (Run(160, 170),)))
    assert kafka.committed[ONE] == Stored(150, "")
    assert kafka.begins().at == 150


def test_a_group_that_started_at_the_end_reads_a_topic_that_was_made_again_from_its_start() -> None:
    kafka = Kafka()
    kafka.starts_at_end()
    assert kafka.begins().at == 400
    kafka.make_again()
    kafka.committed.clear()
    assert kafka.begins().at == 0


def test_a_lane_that_finds_its_position_missing_in_the_topic_that_was_made_again_begins_there() -> None:
    kafka = Kafka()
    kafka.begins()
    kafka.make_again(100)
    assert kafka.goes_on(150) == Beginning(0, (), False, LaneEnd(0, 100), 0)
    kafka.commits(ONE, Commit(70))
    kafka.sidecar = kafka.new_sidecar()
    assert kafka.begins().at == 70


def test_lanes_that_began_in_a_topic_that_was_made_again_since_are_found() -> None:
    kafka = Kafka()
    kafka.begins(ONE)
    assert asyncio.run(kafka.sidecar.remade([ONE, OTHER])) == []
    kafka.make_again()
    kafka.begins(OTHER)
    assert asyncio.run(kafka.sidecar.remade([ONE, OTHER])) == [ONE]


def test_a_topic_that_is_away_for_a_moment_is_waited_for() -> None:
    """By the next question another one may have its name."""
    kafka = Kafka()
    kafka.committed[ONE] = Stored(150, "")
    kafka.existing.clear()
    with pytest.raises(NotFound):
        kafka.begins()
    with pytest.raises(NotFound):
        kafka.goes_on(150)


def test_a_topic_that_is_made_after_a_group_started_at_the_end_is_read_from_its_start() -> None:
    kafka = Kafka("orders", "returns", "^all")
    kafka.starts_at_end()
    kafka.existing |= {"returns", "all-sorts"}
    assert kafka.begins(Lane("returns", 0)).at == kafka.begins(Lane("all-sorts", 0)).at == 0
    assert kafka.begins().at == 400


def test_nor_is_one_of_a_pattern_skipped_that_was_made_while_no_sidecar_ran() -> None:
    kafka = Kafka("^.*")
    kafka.starts_at_end()
    kafka.existing.add("returns")
    kafka.sidecar = kafka.new_sidecar()
    kafka.starts_at_end()
    assert kafka.begins(Lane("returns", 0)).at == 0
    assert kafka.begins().at == 400


def test_nor_one_that_was_made_before_the_sidecar_joined_once_more() -> None:
    kafka = Kafka("orders", "returns")
    kafka.starts_at_end()
    kafka.existing.add("returns")
    kafka.starts_at_end()
    assert kafka.begins(Lane("returns", 0)).at == 0


def test_a_topic_that_is_named_anew_in_a_group_with_members_starts_at_the_end_in_all_its_lanes() -> None:
    kafka = Kafka("orders", "returns")
    kafka.existing.add("returns")
    kafka.committed[ONE] = Stored(150, "")
    kafka.has_members = True
    kafka.starts_at_end()
    assert kafka.begins(Lane("returns", 0)).at == kafka.begins(Lane("returns", 1)).at == 400
    assert kafka.begins().at == 150


def test_a_lane_that_was_added_since_is_read_from_its_start() -> None:
    kafka = Kafka()
    kafka.starts_at_end()
    kafka.lanes = 3
    assert kafka.begins(Lane("orders", 2)).at == 0
    kafka.sidecar = kafka.new_sidecar()
    kafka.starts_at_end()
    assert kafka.begins(Lane("orders", 2)).at == 0


def test_a_lane_of_a_topic_that_was_made_again_before_it_began_is_read_from_its_start() -> None:
    kafka = Kafka()
    kafka.has_members = True
    kafka.starts_at_end()
    kafka.make_again()
    assert kafka.begins(OTHER).at == 0


def test_a_lane_whose_position_somebody_deleted_is_read_from_its_start() -> None:
    kafka = Kafka()
    kafka.starts_at_end()
    kafka.begins()
    kafka.committed.clear()
    assert kafka.begins().at == 0
