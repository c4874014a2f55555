"""Blocks: consecutive records of a lane in one row. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from struct import pack, unpack
from typing import Any, NamedTuple
from zlib import crc32

from sidecar.brokers.local.sqlite_errors import MalformedRow, check_row
from sidecar.model.records import Run

#: bytes of frames in the largest block, unless a single frame is larger
BLOCK_BYTES = 64 << 10
#: bytes of frames; a last block with fewer is written again with what follows, so that records that are published one
#: by one are gathered into blocks, too
TAIL_BYTES = 16 << 10
#: milliseconds after which a last block is not extended, so that a trickle of records does not keep old ones for long
TAIL_MS = 60_000


class Block(NamedTuple):
    """A row of `blocks`, as the database has it."""

    lane: int
    start: int
    stop: int
    bytes_before: int
    newest_ms: int
    written_ms: int
    checksum: int
    lengths: bytes
    frames: bytes

    @classmethod
    def read(cls, row: tuple[Any, ...]) -> "Block":
        """From a row of `COLUMNS`. Raises `MalformedRow`."""
        block = cls(*check_row(row, *_TYPES))
        if not 0 <= block.start < block.stop:
            raise MalformedRow(f"a block reaches from {block.start} to {block.stop}")
        return block

    @property
    def bytes_after(self) -> int:
        return self.bytes_before + len(self.frames)

    @property
    def is_intact(self) -> bool:
        if len(self.lengths) != 4 * (self.stop - self.start):
            return False
        return self.checksum == checksum(self.lengths, self.frames)


#: the columns of `blocks`
COLUMNS = ", ".join(Block._fields)
_TYPES = (int, int, int, int, int, int, int, bytes, bytes)


def checksum(lengths: bytes, frames: bytes) -> int:
    return crc32(frames, crc32(lengths))


class End(NamedTuple):
    """The end of a lane, after which the next block comes."""

    lane: int
    position: int
    #: bytes of frames ever written
    written: int
    #: the last block, if it may still grow
    tail: Block | None = None


def build(end: End, frames: Sequence[bytes], timestamps: Sequence[int], now_ms: int) -> Iterator[Block]:
    """The blocks that append the frames to a lane. The first may replace the tail, and then starts where it starts."""
    tail = end.tail
    if tail is not None and not (_is_open(tail, now_ms) and len(tail.frames) + len(frames[0]) <= BLOCK_BYTES):
        tail = None
    ends = list(accumulate(map(len, frames), initial=0))
    first, position, bytes_before = 0, end.position, end.written
    room = BLOCK_BYTES - (len(tail.frames) if tail else 0)
    while first < len(frames):
        stop = max(first + 1, bisect_right(ends, ends[first] + room) - 1)
        lengths = pack(f"<{stop - first}I", *map(len, frames[first:stop]))
        body = b"".join(frames[first:stop])
        newest = max(timestamps[first:stop])
        start, written = position, now_ms
        if tail is not None:
            lengths, body, newest = tail.lengths + lengths, tail.frames + body, max(newest, tail.newest_ms)
            start, written, bytes_before = tail.start, tail.written_ms, tail.bytes_before
        position += stop - first
        yield Block(end.lane, start, position, bytes_before, newest, written, checksum(lengths, body), lengths, body)
        bytes_before += len(body)
        tail, room, first = None, BLOCK_BYTES, stop


def _is_open(tail: Block, now_ms: int) -> bool:
    return 0 <= now_ms - tail.written_ms < TAIL_MS


def end_after(block: Block) -> End:
    return End(block.lane, block.stop, block.bytes_after, block if len(block.frames) < TAIL_BYTES else None)


class Frames:
    """The frames of a block."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._ends = list(accumulate(unpack(f"<{block.stop - block.start}I", block.lengths), initial=0))

    def cut(self, run: Run, max_bytes: int, at_least: int = 0) -> list[bytes]:
        """The first frames of a run within the block: as many as fit into `max_bytes`, but at least `at_least`."""
        ends, frames = self._ends, self._block.frames
        first, stop = run.start - self._block.start, run.stop - self._block.start
        fit = bisect_right(ends, ends[first] + max_bytes) - 1
        stop = min(stop, max(first, fit, first + at_least))
        return [frames[a:b] for a, b in pairwise(ends[first : stop + 1])]


def without(run: Run, settled: Sequence[Run]) -> Iterator[Run]:
    """The parts of a run that are outside of the settled runs. These ascend."""
    start = run.start
    for done in settled[max(0, bisect_right(settled, start, key=itemgetter(0)) - 1) :]:
        if done.start >= run.stop:
            break
        if start < done.start:
            yield Run(start, done.start)
        start = max(start, done.stop)
    if start < run.stop:
        yield Run(start, run.stop)
