"""Current problems, for operators."""

import logging

import pytest

from sidecar.subscription.troubles import Troubles


def test_trouble_is_logged_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "offramp")
    troubles = Troubles("orders")
    for text in ("the broker is away", "the broker is away", "", ""):
        troubles.set("broker", text)
    assert [record.getMessage() for record in caplog.records] == [
        "the broker is away",
        "resolved: the broker is away",
    ]
    assert not [*troubles]


def test_each_kind_of_trouble_has_one_sentence() -> None:
    troubles = Troubles("orders")
    troubles.set("broker", "the broker is away")
    troubles.set("commit", "commits are held back")
    troubles.set("broker", "the broker refuses us")
    assert [*troubles] == [("broker", "the broker refuses us"), ("commit", "commits are held back")]
    troubles.clear("broker")
    assert [*troubles] == [("commit", "commits are held back")]
