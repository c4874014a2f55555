"""What lanes do with a broker's counts of earlier deliveries."""

from sidecar.core.state.record_slices import FRESH, POSSIBLY_PROCESSED, DeliveryHistory, redeliveries
from sidecar.model.records import Chunk
from tests.kit import frame, lane_state


def test_deliveries_that_the_broker_counts_show_in_attempt_and_count_against_no_record() -> None:
    state = lane_state()
    frames = [frame(position) for position in range(4)]
    slices = state.track(Chunk(state.lane, range(4), frames, delivered_before=[0, 2, 2, 1]), 0.0)
    assert [(slice_.start, slice_.stop, slice_.history) for slice_ in slices] == [
        (0, 1, FRESH),
        (1, 3, DeliveryHistory(failures=2, possibly_processed=True)),
        (3, 4, DeliveryHistory(failures=1, possibly_processed=True)),
    ]
    told = [(one.first, one.count, one.attempt, one.possibly_processed) for one in redeliveries(slices)]
    assert told == [(1, 2, 3, True), (3, 1, 2, True)]
    # Together they settle all positions.
    assert [slice_.run for slice_ in slices] == [(0, 1), (1, 3), (3, 4)]


def test_a_chunk_that_another_sidecar_may_have_had_is_flagged_whole() -> None:
    state = lane_state()
    (slice_,) = state.track(
        Chunk(state.lane, range(3), [frame(position) for position in range(3)], possibly_processed=True), 0.0
    )
    assert slice_.history == POSSIBLY_PROCESSED
