"""The demo's publisher: sends its share of the orders, and notes what it was promised to be on disk."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from offramp import Message, Publisher
from sidecar.cli.demo import orders
from sidecar.cli.demo.journal import Journal, Word
from sidecar.cli.demo.orders import Kind
from sidecar.cli.demo.plan import BROKER, TOPIC, Folder, Plan

#: publishers at a time
SHARES = 2
#: messages of a call: many where they are to be there soon, fewer where they trickle
_BACKLOG_BATCH, _LIVE_BATCH = 1_000, 200


def main(argv: list[str]) -> None:
    folder, part, share = Folder(Path(argv[0])), argv[1], int(argv[2])
    plan = Plan.load(folder)
    journal = Journal(folder.journal(f"publisher-{part}-{share}"))
    with Publisher(broker=BROKER, address=folder.address) as publisher:
        for numbers in backlog(plan, share) if part == "backlog" else paced(plan, live(plan, share)):
            # Answered when the broker has them on disk.
            places = publisher.publish_many(TOPIC, [_message(plan, number) for number in numbers])
            journal.note(Word.PUBLISHED, TOPIC, places)
    journal.farewell()


def backlog(plan: Plan, share: int) -> list[range]:
    """The orders that are there before the first worker, in batches, by their numbers."""
    return _batches(0, plan.backlog_records, _BACKLOG_BATCH, share)


def live(plan: Plan, share: int) -> list[range]:
    """The orders that come while the workers work."""
    return _batches(plan.backlog_records, plan.records, _LIVE_BATCH, share)


def paced(plan: Plan, batches: list[range]) -> Iterator[range]:
    """Evenly over the time that the plan has for it."""
    began = time.monotonic()
    for index, numbers in enumerate(batches):
        due = began + plan.live_for * index / len(batches)
        time.sleep(max(0.0, due - time.monotonic()))
        yield numbers


def _batches(start: int, stop: int, size: int, share: int) -> list[range]:
    starts = range(start + share * size, stop, SHARES * size)
    return [range(first, min(first + size, stop)) for first in starts]


def _message(plan: Plan, number: int) -> Message:
    value = orders.write(number, plan.kinds.get(number, Kind.PLAIN), plan.wait)
    return Message(value, lane=number % plan.lanes)


if __name__ == "__main__":
    main(sys.argv[1:])
