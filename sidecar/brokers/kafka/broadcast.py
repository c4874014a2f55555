"""Broadcast: every pod has a group of its own, and they share one retry topic."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from confluent_kafka import Message as Received

from sidecar.model.records import Header, Message

#: says which pod a record of the retry topic belongs to
_HEADER = "offramp-instance"


def addressed(messages: Sequence[Message], instance: str) -> list[Message]:
    """What a pod puts into the retry topic comes back to it alone."""
    mine = Header(_HEADER, instance.encode())
    return [replace(message, headers=(*message.headers, mine)) for message in messages]


def sieve(own_topics: Collection[str], instance: str) -> Callable[[list[Received]], list[Received]]:
    """Takes out what other pods have put into the retry topic: to this one it is a gap."""
    mine = (_HEADER, instance.encode())

    def is_mine(message: Received) -> bool:
        if message.error() is not None or message.topic() not in own_topics:
            return True
        headers = [*(message.headers() or ())]
        if mine not in headers:
            return False
        message.set_headers([header for header in headers if header[0] != _HEADER])
        return True

    return lambda messages: [message for message in messages if is_mine(message)]
