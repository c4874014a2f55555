"""Messages that have arrived, encoded."""

from hypothesis import given
from hypothesis import strategies as st

from sidecar.brokers.queue.arrivals import Arrivals
from sidecar.brokers.queue.driver import Received
from sidecar.model.records import Header, Lane
from sidecar.model.wire import encode_frame

payloads = st.none() | st.binary(max_size=200) | st.just(bytes(20_000))
received = st.builds(
    Received,
    st.just(0),
    payloads,
    payloads,
    st.lists(st.builds(Header, st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    st.integers(0, 1 << 42) | st.just(1_700_000_000_000),
    st.binary(max_size=300),
)
positions = st.lists(st.integers(0, (1 << 62)) | st.integers(0, 40_000), unique=True, max_size=8).map(sorted)


@given(st.data(), positions, st.integers(0, 300))
def test_frames_are_those_of_the_encoder(data: st.DataObject, at: list[int], number: int) -> None:
    messages = [data.draw(received) for _ in at]
    lane = Lane("topic", number)
    arrivals = Arrivals(lane, flag_all=False)
    sizes = arrivals.add(messages, at)
    expected = [
        encode_frame(one.key, one.value, one.headers, number, position, one.timestamp_ms, one.ref)
        for one, position in zip(messages, at, strict=True)
    ]
    assert sizes == [len(frame) for frame in expected]
    frames: list[bytes] = []
    told: list[int] = []
    while arrivals.records and (chunk := arrivals.take(100, 1 << 30, 1)) is not None:
        frames += chunk.frames
        told += chunk.positions
    assert (frames, told) == (expected, at)
