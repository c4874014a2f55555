"""Subscriptions to brokers with handles: what cannot be promised is refused, with what to use instead."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

from sidecar import brokers
from sidecar.brokers.base import BrokerOptions, Traits
from sidecar.brokers.queue import checks
from sidecar.settings import SubscriptionSettings
from tests.brokers.queue.harness import PLAIN, traits
from tests.unit.config.kit import problems


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions(BrokerOptions):
    """Options of a fictitious queue."""

    traits: ClassVar[Traits] = traits(PLAIN)

    def problems_with(self, subscription: SubscriptionSettings) -> Iterator[tuple[str, str]]:
        yield from checks.problems_with(subscription, self.traits, hold=1800.0)


@pytest.fixture(autouse=True)
def queue(monkeypatch: pytest.MonkeyPatch) -> None:
    options_class = brokers.options_class
    monkeypatch.setattr(brokers, "kinds", lambda: ("local", "queue"))
    monkeypatch.setattr(brokers, "options_class", lambda kind: QueueOptions if kind == "queue" else options_class(kind))


def found(subscription: str) -> list[str]:
    text = "brokers: {q: {type: queue}}\nsubscriptions:\n  s: {broker: q, lease: {max: 30m}, " + subscription
    return problems(text)


def test_a_subscription_that_promises_what_a_queue_can_keep_is_accepted() -> None:
    assert found("topics: [a]}") == []


@pytest.mark.parametrize("order", ["key", "lane"])
def test_an_order_that_a_shared_queue_cannot_keep_is_refused(order: str) -> None:
    (line,) = found(f"topics: [a], order: {order}}}")
    assert f'subscriptions.s.order: "{order}" cannot be kept' in line
    assert "Take order none" in line


def test_a_queue_has_no_latest() -> None:
    (line,) = found("topics: [a], start: latest}")
    assert 'subscriptions.s.start: "latest" has no meaning' in line


def test_a_lease_that_is_longer_than_the_broker_lets_a_message_be_held_is_refused() -> None:
    (line,) = problems("brokers: {q: {type: queue}}\nsubscriptions: {s: {broker: q, topics: [a]}}")
    assert "lease.max: 3600 s is longer than the broker lets a message be held (1800 s)" in line


def test_two_groups_on_a_queue_that_all_share_are_refused() -> None:
    (line,) = found("topics: [a]}\n  t: {broker: q, lease: {max: 30m}, topics: [a, b]}")
    assert 'subscriptions.t.topics: "a" is consumed by s already, and all who consume a topic of broker q share' in line
