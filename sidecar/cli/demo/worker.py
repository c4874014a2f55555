"""The worker process: an app that processes orders, as an app of yours would.

`handle` is what you would write. The journal is for the audit, which relies neither on the sidecar nor on its counters.
"""

import json
import random
import sys
import time
from pathlib import Path

from offramp import Batch, Record, Worker
from sidecar.cli.demo.journal import Action, Journal
from sidecar.cli.demo.plan import SUBSCRIPTION, Folder, Plan


class Shop:
    def __init__(self, plan: Plan, journal: Journal) -> None:
        self._plan = plan
        self._journal = journal

    def handle(self, batch: Batch) -> None:
        """Returning acks the batch, except for records that were marked otherwise; raising fails all of it."""
        self._write_received(batch)
        try:
            orders = [json.loads(record.value or b"") for record in batch]
        except ValueError:
            # Which record is it? The sidecar finds out: it splits the batch until the bad one is alone.
            self._write(Action.NACKED, [*batch])
            raise
        done, failed, rejected = [], [], []
        for record, order in zip(batch, orders, strict=True):
            if order["cents"] < 0:
                record.reject("a refund is not an order")
                rejected.append(record)
            elif order.get("bank") == "flaky" and record.attempt == 1:
                record.nack("the bank did not answer")
                failed.append(record)
            elif "wait" in order and record.attempt == 1:
                record.nack("a pre-order, not yet for sale", after=order["wait"])
                failed.append(record)
            else:
                done.append(record)
        self._work(done)
        self._write(Action.REJECTED, rejected)
        self._write(Action.NACKED, failed)
        self._write(Action.ACKED, done)

    def _work(self, records: list[Record]) -> None:
        """In place of a database: fast, except for the orders of one lane."""
        slow = sum(record.lane == self._plan.slow_lane for record in records)
        time.sleep(0.002 + slow * self._plan.slow_seconds * random.uniform(0.8, 1.2))

    def _write_received(self, batch: Batch) -> None:
        again = [record for record in batch if record.possibly_processed and record.attempt > 1]
        self._write(Action.RECEIVED_AGAIN, again)
        if len(again) < len(batch):
            self._write(Action.RECEIVED, [*batch])

    def _write(self, action: Action, records: list[Record]) -> None:
        if records:
            self._journal.write(action, records[0].topic, ((record.lane, record.position) for record in records))


def main(argv: list[str]) -> None:
    folder, name = Folder(Path(argv[0])), argv[1]
    plan = Plan.load(folder)
    journal = Journal(folder.journal(name))
    shop = Shop(plan, journal)
    # Runs until SIGTERM, then finishes what it holds.
    Worker(SUBSCRIPTION, shop.handle, workers=plan.handlers, address=folder.address, name=name).run()
    journal.write_end()


if __name__ == "__main__":
    main(sys.argv[1:])
