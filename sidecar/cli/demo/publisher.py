"""The publisher process: publishes its share of the orders, and writes down which of them are confirmed."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from offramp import Message, Publisher
from sidecar.cli.demo import orders
from sidecar.cli.demo.journal import Action, Journal
from sidecar.cli.demo.orders import Kind
from sidecar.cli.demo.plan import BROKER, TOPIC, Folder, Plan

#: number of publishers that run at the same time
SHARES = 2
#: messages of a call: many for speed, fewer for an even rate
_BACKLOG_BATCH, _LIVE_BATCH = 1_000, 200


def main(argv: list[str]) -> None:
    folder, part, share = Folder(Path(argv[0])), argv[1], int(argv[2])
    plan = Plan.load(folder)
    journal = Journal(folder.journal(f"publisher-{part}-{share}"))
    with Publisher(broker=BROKER, address=folder.address) as publisher:
        for numbers in backlog(plan, share) if part == "backlog" else paced(plan, live(plan, share)):
            # Returns when the broker has them on disk.
            places = publisher.publish_many(TOPIC, [_message(plan, number) for number in numbers])
            journal.write(Action.PUBLISHED, TOPIC, places)
    journal.write_end()


def backlog(plan: Plan, share: int) -> list[range]:
    """Numbers of the orders that are published before the first worker starts, in batches."""
    return _batches(0, plan.backlog_records, _BACKLOG_BATCH, share)


def live(plan: Plan, share: int) -> list[range]:
    """Numbers of the orders that are published while the workers run."""
    return _batches(plan.backlog_records, plan.records, _LIVE_BATCH, share)


def paced(plan: Plan, batches: list[range]) -> Iterator[range]:
    """Spreads batches evenly over the time that the plan has for them."""
    began = time.monotonic()
    for index, numbers in enumerate(batches):
        due = began + plan.live_for * index / len(batches)
        time.sleep(max(0.0, due - time.monotonic()))
        yield numbers


def _batches(start: int, stop: int, size: int, share: int) -> list[range]:
    starts = range(start + share * size, stop, SHARES * size)
    return [range(first, min(first + size, stop)) for first in starts]


def _message(plan: Plan, number: int) -> Message:
    value = orders.encode(number, plan.kinds.get(number, Kind.PLAIN), plan.wait)
    return Message(value, lane=number % plan.lanes)


if __name__ == "__main__":
    main(sys.argv[1:])
