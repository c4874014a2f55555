"""How much memory records may hold, and which lanes must be paused."""

from sidecar.core.state.memory_limit import LaneUsage, MemoryLimit
from sidecar.settings import Bytes, MemorySettings


def a_memory(records: int = 1_000) -> MemoryLimit:
    """For a thousand records: five hundred guaranteed, five hundred common."""
    return MemoryLimit(MemorySettings(records=records, poll_records=10))


def held(**lanes: int) -> list[LaneUsage]:
    """So many records of each lane; names of lanes of the retry topic start with `retry`."""
    return [LaneUsage(name, records, 0, name.startswith("retry")) for name, records in lanes.items()]


def test_one_lane_may_use_all_of_it() -> None:
    memory = a_memory()
    assert memory.full(held(a=980)) == set()
    assert memory.full(held(a=995)) == {"a"}


def test_a_slow_lane_takes_its_own_part_and_the_common_one_and_no_more() -> None:
    memory = a_memory()
    assert memory.full(held(a=740, b=0)) == set()
    assert memory.full(held(a=745, b=0)) == {"a"}


def test_a_lane_that_has_its_own_part_left_is_never_full() -> None:
    assert a_memory().full(held(a=750, b=249)) == {"a"}


def test_a_lane_goes_on_when_the_common_part_is_down_to_four_fifths() -> None:
    memory = a_memory()
    assert memory.full(held(a=995)) == {"a"}
    assert memory.full(held(a=901)) == {"a"}
    assert memory.full(held(a=900)) == set()


def test_lanes_of_the_retry_topic_get_nothing_of_the_common_part() -> None:
    """Records that only wait must not take memory from those that can be processed."""
    assert a_memory().full(held(a=0, retry=250)) == {"retry"}


def test_bytes_count_as_records_do() -> None:
    memory = MemoryLimit(MemorySettings(bytes=Bytes(1 << 20), poll_bytes=Bytes(1024)))
    assert memory.full([LaneUsage("a", 1, 1 << 20, waits_only=False)]) == {"a"}


def test_a_fetch_asks_for_no_more_than_there_is_room_for() -> None:
    memory = MemoryLimit(MemorySettings(records=1_000, poll_records=50))
    assert memory.next_fetch(0, 0)[0] == 50
    assert memory.next_fetch(980, 0)[0] == 20
    assert memory.next_fetch(2_000, 0)[0] == 1


def test_a_fetch_is_small_beside_the_memory_whatever_the_settings_say() -> None:
    assert MemoryLimit(MemorySettings(records=1_000, poll_records=100_000)).next_fetch(0, 0)[0] == 62
