"""What was fetched from Kafka in vain."""

import json

from sidecar.brokers.kafka.waste import Waste
from sidecar.model.records import Lane

A = Lane("a", 0)


def statistics(received: int, queued: int, size: int = 100) -> str:
    figures = {"rxmsgs": received, "rxbytes": received * size, "fetchq_cnt": queued}
    return json.dumps({"topics": {"a": {"partitions": {"0": figures, "-1": {**figures, "rxmsgs": 0}}}}})


def test_what_was_received_and_neither_waits_nor_was_taken_is_wasted() -> None:
    waste = Waste()
    waste.took(A, 60)
    waste.report(statistics(received=100, queued=40))
    assert waste.bytes == 0
    # A pause throws away what waits; it comes again.
    waste.report(statistics(received=140, queued=40))
    assert waste.bytes == 40 * 100
    # What lay ready and was withdrawn comes again, too.
    waste.took(A, -10)
    waste.report(statistics(received=140, queued=40))
    assert waste.bytes == 50 * 100


def test_the_figure_never_shrinks() -> None:
    waste = Waste()
    waste.report(statistics(received=100, queued=0))
    waste.took(A, 100)
    waste.report(statistics(received=100, queued=0))
    assert waste.bytes == 100 * 100
