"""Publishes what an app answers."""

import asyncio
import random
from collections.abc import Callable, Mapping

from sidecar.brokers.base import Broker
from sidecar.core.failures.backoff import Backoff
from sidecar.model.errors import BrokerError, TooLarge
from sidecar.model.records import Header, Message
from sidecar.push import header_text
from sidecar.push.batch import PushedBatch
from sidecar.subscription.troubles import Troubles

TROUBLE = "push_reply"
#: names the record or the batch that a reply belongs to
IN_REPLY_TO = "offramp-in-reply-to"


def message(headers: Mapping[str, str], body: bytes, batch: PushedBatch) -> Message:
    """An answer as a message: with the key of the record, if there is only one, and with the attributes of an event."""
    single = batch.records[0] if len(batch.records) == 1 else None
    out = [Header(IN_REPLY_TO, (single.id if single else batch.id).encode())]
    if content_type := headers.get("content-type"):
        out.append(Header("content-type", content_type.encode(errors="surrogateescape")))
    for name, value in headers.items():
        if name.startswith("ce-"):
            out.append(Header(f"ce_{name[3:]}", header_text.decode(value)))
    for name in ("traceparent", "tracestate"):
        if text := headers.get(name) or (single and single.header(name)):
            out.append(Header(name, text.encode(errors="surrogateescape")))
    return Message(single.record.key if single else None, body, tuple(out))


class ReplyPublisher:
    """Publishes replies to one topic, as often as it takes."""

    def __init__(self, broker: Broker, topic: str, troubles: Troubles, rng: random.Random) -> None:
        self._broker = broker
        self._topic = topic
        self._troubles = troubles
        self._backoff = Backoff(0.1, 2.0, 10.0, 0.2, rng)

    async def publish(self, reply: Message, wanted: Callable[[], bool]) -> bool:
        """Returns True once the broker has it durably, and False once it is no longer `wanted`.

        Raises `TooLarge`, for which no repetition helps.
        """
        failures = 0
        while wanted():
            try:
                await self._broker.publish(self._topic, [reply])
            except TooLarge:
                raise
            except BrokerError as error:
                failures += 1
                self._troubles.set(TROUBLE, f"cannot publish to push.reply_topic; trying again: {error}")
                await asyncio.sleep(self._backoff.wait(failures))
                continue
            self._troubles.clear(TROUBLE)
            return True
        return False
