"""Replies are published as often as it takes."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from sidecar.model.errors import TooLarge, Unavailable
from sidecar.model.records import Message
from sidecar.push.replies import TROUBLE, ReplyPublisher
from sidecar.subscription.troubles import Troubles
from tests.event_loop import on_event_loop

REPLY = Message(None, b"done")


class FailingBroker:
    """Refuses so many publishes."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = [*errors]
        self.troubles = Troubles("orders")
        self.published: list[tuple[str, Sequence[Message]]] = []
        self.seen: list[str] = []

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Any]:
        self.seen.append(self.troubles.get(TROUBLE))
        if self._errors:
            raise self._errors.pop(0)
        self.published.append((topic, messages))
        return ()

    def replies(self) -> ReplyPublisher:
        broker: Any = self
        return ReplyPublisher(broker, "answers", self.troubles, random.Random(1))


@on_event_loop
async def test_a_publish_that_fails_is_repeated_and_says_so_meanwhile() -> None:
    broker = FailingBroker(Unavailable("away"), Unavailable("away"))
    assert await broker.replies().publish(REPLY, lambda: True)
    assert broker.published == [("answers", [REPLY])]
    assert broker.seen == ["", *2 * ["cannot publish to push.reply_topic; trying again: away"]]
    assert not broker.troubles.get(TROUBLE)


@on_event_loop
async def test_it_ends_when_the_batch_is_not_held_any_more() -> None:
    held = [True, False]
    assert not await FailingBroker(Unavailable("away")).replies().publish(REPLY, lambda: held.pop(0))


@on_event_loop
async def test_a_reply_that_no_repetition_will_publish_is_an_error() -> None:
    with pytest.raises(TooLarge):
        await FailingBroker(TooLarge("a gigabyte")).replies().publish(REPLY, lambda: True)
