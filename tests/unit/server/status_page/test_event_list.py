"""The log events that the status page keeps."""

import logging
from collections.abc import Iterator

import pytest

from sidecar.observability import logs
from sidecar.observability.logs import Log
from sidecar.server.status_page.event_list import MAX_EVENTS, EventLog


@pytest.fixture
def events() -> Iterator[EventLog]:
    listening = EventLog()
    listening.listen()
    level = logs.root().level
    logs.root().setLevel(logging.DEBUG)
    yield listening
    logs.root().setLevel(level)
    listening.close()


def test_events_are_what_was_logged_newest_first(events: EventLog) -> None:
    log = Log("lanes")
    log.info("lanes were assigned", subscription="orders", lanes=["orders/0", "orders/1"])
    log.warning("commits are held back")
    log.debug("nobody acts on this")
    newest, oldest = events.latest(10)
    assert (newest.level, newest.text, newest.fields) == ("warning", "commits are held back", "")
    assert oldest.fields == "subscription=orders lanes=orders/0,orders/1"


def test_an_event_that_repeats_itself_is_one_that_counts(events: EventLog) -> None:
    log = Log("broker")
    for _ in range(1000):
        log.warning("no answer", broker="kafka")
    log.info("the broker is open", broker="kafka")
    assert [(event.text, event.times) for event in events.latest(10)] == [
        ("the broker is open", 1),
        ("no answer", 1000),
    ]


def test_events_are_bounded_in_number_and_length(events: EventLog) -> None:
    log = Log("x")
    for n in range(3 * MAX_EVENTS):
        log.info(f"{n} " + "y" * 10_000, error="z" * 10_000)
    kept = events.latest(10 * MAX_EVENTS)
    assert len(kept) == MAX_EVENTS
    assert max(len(event.text) + len(event.fields) for event in kept) <= 800
    assert kept[0].text.startswith(str(3 * MAX_EVENTS - 1))


def test_the_trace_of_a_bug_stays_in_the_log(events: EventLog) -> None:
    Log("x").bug("nobody foresaw this", ValueError("secret"))
    assert [(event.level, event.text, event.fields) for event in events.latest(1)] == [
        ("error", "nobody foresaw this", "")
    ]


def test_nothing_is_kept_after_it_was_closed(events: EventLog) -> None:
    events.close()
    Log("x").info("later")
    assert events.latest(1) == []
