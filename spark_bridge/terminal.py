"""What a person sees of a running query."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from spark_bridge.progress import done

#: the line of a Python traceback that says what went wrong, wherever Spark has put it
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+): (.+)$")


class Reporter:
    """One line for each batch that had something to do."""

    def __init__(self, to: TextIO, *, quiet: bool = False) -> None:
        self._to = to
        self._quiet = quiet
        self._shown = -1
        self._rows = 0
        self._batches = 0

    def started(self, subscription: str, sink: str) -> None:
        self._say(f"reading {subscription}, writing to {sink}")

    def show(self, progresses: Sequence[Mapping[str, Any]]) -> None:
        """Shows those that were not shown yet."""
        for progress in progresses:
            if progress["batchId"] <= self._shown or not progress["numInputRows"]:
                continue
            self._shown = progress["batchId"]
            self._rows += progress["numInputRows"]
            self._batches += 1
            self._say(line(progress))

    def ended(self) -> None:
        self._say(f"{self._rows:,} records in {self._batches} batches; all that was done is committed")

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(text, file=self._to, flush=True)


def line(progress: Mapping[str, Any]) -> str:
    """A batch in one line."""
    rows, took = progress["numInputRows"], progress["batchDuration"]
    rate = f"{rows / took * 1_000:,.0f}/s" if took else "-"
    return (
        f"batch {progress['batchId']}: {rows:,} records in {took / 1_000:.1f} s ({rate}), {behind(progress):,} behind"
    )


def behind(progress: Mapping[str, Any]) -> int:
    """Positions between what is done and the ends of the lanes."""
    total = 0
    for source in progress["sources"]:
        for one, ends in zip(done([source]), done([{**source, "endOffset": source["latestOffset"]}]), strict=True):
            total += sum(max(0, end - one.positions.get(lane, end)) for lane, end in ends.positions.items())
    return total


def cause(error: BaseException) -> str:
    """What went wrong, without the stacks of two languages: the last error that the bridge itself raised."""
    text = str(error)
    for one in reversed(text.splitlines()):
        found = _RAISED.match(one.strip())
        if found and one.strip().startswith(("spark_bridge.", "offramp.")):
            return found[2]
    return text.split("\n\nJVM stacktrace", maxsplit=1)[0].strip()
