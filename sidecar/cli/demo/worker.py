"""The demo's worker: an app that handles orders. It runs in a process of its own, as an app of yours would.

`handle` is what you would write. What it notes in its journal is for the checker, which believes neither the sidecar
nor its counters.
"""

import json
import random
import sys
import time
from pathlib import Path

from offramp import Batch, Record, Worker
from sidecar.cli.demo.journal import Journal, Word
from sidecar.cli.demo.plan import SUBSCRIPTION, Folder, Plan


class Shop:
    def __init__(self, plan: Plan, journal: Journal) -> None:
        self._plan = plan
        self._journal = journal

    def handle(self, batch: Batch) -> None:
        """Returning acks the batch, except for records that were marked otherwise; raising fails all of it."""
        self._note_taken(batch)
        try:
            orders = [json.loads(record.value or b"") for record in batch]
        except ValueError:
            # Which record it is? The sidecar finds out: it halves the batch until the bad one is alone.
            self._note(Word.NACKED, [*batch])
            raise
        done, failed, refused = [], [], []
        for record, order in zip(batch, orders, strict=True):
            if order["cents"] < 0:
                record.reject("a refund is not an order")
                refused.append(record)
            elif order.get("bank") == "flaky" and record.attempt == 1:
                record.nack("the bank did not answer")
                failed.append(record)
            elif "wait" in order and record.attempt == 1:
                record.nack("a pre-order, not yet for sale", after=order["wait"])
                failed.append(record)
            else:
                done.append(record)
        self._work(done)
        self._note(Word.REJECTED, refused)
        self._note(Word.NACKED, failed)
        self._note(Word.ACKED, done)

    def _work(self, records: list[Record]) -> None:
        """Stands in for the database: fast, but for the orders of one lane."""
        slow = sum(record.lane == self._plan.slow_lane for record in records)
        time.sleep(0.002 + slow * self._plan.slow_seconds * random.uniform(0.8, 1.2))

    def _note_taken(self, batch: Batch) -> None:
        again = [record for record in batch if record.possibly_processed and record.attempt > 1]
        self._note(Word.TOOK_AGAIN, again)
        if len(again) < len(batch):
            self._note(Word.TOOK, [*batch])

    def _note(self, word: Word, records: list[Record]) -> None:
        if records:
            self._journal.note(word, records[0].topic, ((record.lane, record.position) for record in records))


def main(argv: list[str]) -> None:
    folder, name = Folder(Path(argv[0])), argv[1]
    plan = Plan.load(folder)
    journal = Journal(folder.journal(name))
    shop = Shop(plan, journal)
    # Works until SIGTERM, then finishes what it has in hand.
    Worker(SUBSCRIPTION, shop.handle, workers=plan.handlers, address=folder.address, name=name).run()
    journal.farewell()


if __name__ == "__main__":
    main(sys.argv[1:])
