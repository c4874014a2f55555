"""Counts work instead of measuring its time: what a busy machine does not change."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(work: Callable[[], object]) -> int:
    """The number of calls, of Python and C functions, without those of garbage collection."""
    calls = 0

    def count(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


def lines_of(work: Callable[[], object]) -> int:
    """The number of lines that are run: a loop that calls nothing shows in them."""
    lines = 0

    def count(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    gc.disable()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return lines
