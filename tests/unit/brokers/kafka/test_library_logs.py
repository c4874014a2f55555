"""What the library reports by itself."""

import logging

import pytest
from confluent_kafka import KafkaError

from sidecar.brokers.kafka.library_logs import LibraryLogs, RecentErrors


def test_a_recent_error_explains_a_call_that_only_timed_out() -> None:
    recent_errors = RecentErrors()
    late = KafkaError(KafkaError._TIMED_OUT)
    assert recent_errors.explain(late) is late
    refused = KafkaError(KafkaError._AUTHENTICATION)
    recent_errors.add(refused)
    # Says less than the earlier error.
    recent_errors.add(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert recent_errors.explain(late) is refused
    clear = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert recent_errors.explain(clear) is clear


def test_a_line_of_the_library_is_logged_once_and_rarely_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    logger = LibraryLogs().logger
    with caplog.at_level(logging.DEBUG, "offramp.kafka"):
        for number in range(3):
            logger.error(f"FAIL [offramp#consumer-{number}] Connect failed")
            logger.warning(f"STRANGE [offramp#consumer-{number}] something")
    assert [(record.levelname, record.message.split()[0]) for record in caplog.records] == [
        ("DEBUG", "FAIL"),
        ("WARNING", "STRANGE"),
    ]
