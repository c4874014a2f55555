"""Blocks: frames of every size that are packed can be read again."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sidecar.brokers.local.blocks import BLOCK_BYTES, TAIL_BYTES, TAIL_MS, Block, End, Frames, build, end_after, without
from sidecar.model.records import Run

NOW = 1_700_000_000_000

sizes = st.one_of(st.integers(1, 300), st.integers(TAIL_BYTES - 5, TAIL_BYTES + 5), st.integers(1, 2 * BLOCK_BYTES))
#: transactions: sizes of their frames, and the milliseconds since the one before
transactions = st.lists(
    st.tuples(
        st.lists(st.integers(1, 300), min_size=1, max_size=3) | st.lists(sizes, min_size=1, max_size=20),
        st.sampled_from([0, 1000, TAIL_MS, -1000]),
    ),
    max_size=8,
)


def write(history: list[tuple[list[int], int]]) -> tuple[list[Block], list[bytes], list[int]]:
    """The blocks of a lane as the database would hold them, and the frames and timestamps that were written."""
    rows: dict[int, Block] = {}
    written: list[bytes] = []
    stamps: list[int] = []
    end, now = End(7, 0, 0), NOW
    for lengths, pause in history:
        now += pause
        frames = [bytes([len(written) % 251]) * length for length in lengths]
        timestamps = [now + (7 * length) % 5000 for length in lengths]
        for block in build(end, frames, timestamps, now):
            rows[block.start] = block
            end = end_after(block)
        written += frames
        stamps += timestamps
    return [rows[start] for start in sorted(rows)], written, stamps


@given(transactions)
def test_blocks_hold_all_frames_in_order_and_without_gaps(history: list[tuple[list[int], int]]) -> None:
    blocks, written, stamps = write(history)
    position, size, found = 0, 0, []
    for block in blocks:
        assert (block.lane, block.start, block.bytes_before) == (7, position, size)
        assert block.is_intact
        assert block.newest_ms == max(stamps[block.start : block.stop])
        found += Frames(block).cut(Run(block.start, block.stop), len(block.frames))
        position, size = block.stop, block.bytes_after
    assert found == written


@given(transactions)
def test_blocks_stay_small_and_are_not_many(history: list[tuple[list[int], int]]) -> None:
    blocks, _, _ = write(history)
    for block in blocks:
        assert len(block.frames) <= BLOCK_BYTES or block.stop - block.start == 1
    if all(pause in (0, 1000) for _, pause in history):
        for block, after in pairwise(blocks):
            # A small block stays small only if the record after it is large.
            (next_frame,) = Frames(after).cut(Run(after.start, after.start + 1), 0, at_least=1)
            assert len(block.frames) >= TAIL_BYTES or len(block.frames) + len(next_frame) > BLOCK_BYTES


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.data())
def test_cut_returns_the_frames_that_fit(lengths: list[int], data: st.DataObject) -> None:
    frames = [bytes([at]) * length for at, length in enumerate(lengths)]
    (block,) = build(End(1, 100, 0), frames, [NOW] * len(frames), NOW)
    start = data.draw(st.integers(0, len(frames) - 1))
    stop = data.draw(st.integers(start, len(frames)))
    limit = data.draw(st.integers(-10, 500))
    at_least = data.draw(st.integers(-3, 2))
    expected: list[bytes] = []
    for frame in frames[start:stop]:
        if sum(map(len, expected)) + len(frame) > limit and len(expected) >= at_least:
            break
        expected.append(frame)
    assert Frames(block).cut(Run(100 + start, 100 + stop), limit, at_least) == expected


def test_a_changed_block_is_not_intact() -> None:
    (block,) = build(End(1, 0, 0), [b"frame", b"other"], [NOW, NOW], NOW)
    assert not block._replace(frames=b"framEother").is_intact
    assert not block._replace(lengths=block.lengths[:4]).is_intact
    assert not block._replace(stop=3).is_intact


runs = st.lists(st.integers(0, 60), unique=True, max_size=12).map(
    lambda edges: [Run(*pair) for pair in zip(*[iter(sorted(edges))] * 2, strict=False)]
)


@given(st.integers(0, 60), st.integers(0, 60), runs)
def test_without_returns_what_is_not_settled(start: int, stop: int, settled: list[Run]) -> None:
    done = {position for run in settled for position in range(*run)}
    left = list(without(Run(start, stop), settled))
    assert [p for run in left for p in range(*run)] == [p for p in range(start, stop) if p not in done]
    assert all(run.start < run.stop for run in left)
