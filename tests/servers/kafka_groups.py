"""A group of Kafka, seen and disturbed from outside: who is in it, and throwing a member out.

Written on a socket by hand: no client library takes the leave of somebody else's member, and a test should not use
the library that it tests.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import ConsumerGroupType

from tests.servers.kafka import KafkaServer, patiently
from tests.servers.process import SERVER_TIMEOUT, await_

_LEAVE_GROUP, _HEARTBEAT = 13, 68
#: the epoch of a member that leaves
_LEAVES = -1
_UNKNOWN_MEMBER = 25


def assignments(kafka: KafkaServer, group: str) -> dict[str, set[tuple[str, int]]]:
    """Topic and partition of what each member has, by its `client.id`."""
    return {member.client_id: _lanes(member.assignment) for member in _members(kafka, group)}


def targets(kafka: KafkaServer, group: str) -> dict[str, set[tuple[str, int]]]:
    """The same of what each member is to have: what it must give back is no longer among it."""
    members = _members(kafka, group)
    return {member.client_id: _lanes(member.target_assignment or member.assignment) for member in members}


def _members(kafka: KafkaServer, group: str) -> list[Any]:
    return list(patiently(lambda: kafka.admin.describe_consumer_groups([group])[group].result(SERVER_TIMEOUT)).members)


def _lanes(assignment: Any) -> set[tuple[str, int]]:
    return {(one.topic, one.partition) for one in assignment.topic_partitions}


def throw_out(kafka: KafkaServer, group: str, client_id: str) -> None:
    """The broker takes the member for gone, which it hears of by its next heartbeat. Its lanes go to the others."""
    described = kafka.admin.describe_consumer_groups([group])[group].result(SERVER_TIMEOUT)
    member = next((one.member_id for one in described.members if one.client_id == client_id), None)
    if member is None:
        return
    if described.type == ConsumerGroupType.CONSUMER:
        error = _leave_as_consumer(kafka, group, member)
    else:
        error = _leave_as_classic(kafka, group, member)
    assert error in (0, _UNKNOWN_MEMBER), f"Kafka answers with error {error}"


def give_to_others(kafka: KafkaServer, group: str, client_id: str) -> None:
    """Throw a member out until the others have all lanes of the group. It may come back then."""
    lanes = sum(len(held) for held in assignments(kafka, group).values())

    def others_have_all() -> bool:
        held = assignments(kafka, group)
        if client_id in held:
            throw_out(kafka, group, client_id)
        return sum(len(lanes) for who, lanes in held.items() if who != client_id) >= lanes

    await_(others_have_all, f"the other members of {group} have its lanes")


def _leave_as_consumer(kafka: KafkaServer, group: str, member: str) -> int:
    """KIP-848: a heartbeat that says goodbye."""
    body = b"".join(
        (
            _compact(group),
            _compact(member),
            struct.pack(">i", _LEAVES),
            _compact(None),  # instance
            _compact(None),  # rack
            struct.pack(">i", -1),  # rebalance timeout
            b"\0",  # topics
            _compact(None),  # assignor
            b"\0",  # partitions
            b"\0",  # tags
        )
    )
    answer = _ask(kafka, _HEARTBEAT, 0, body, flexible=True)
    # Tags of the header, throttle time, error.
    (error,) = struct.unpack_from(">h", answer, 1 + 4)
    return int(error)


def _leave_as_classic(kafka: KafkaServer, group: str, member: str) -> int:
    body = _plain(group) + struct.pack(">i", 1) + _plain(member) + _plain(None)
    answer = _ask(kafka, _LEAVE_GROUP, 3, body, flexible=False)
    # Throttle time, error.
    (error,) = struct.unpack_from(">h", answer, 4)
    return int(error)


def _ask(kafka: KafkaServer, api: int, version: int, body: bytes, *, flexible: bool) -> bytes:
    header = struct.pack(">hhi", api, version, 1) + _plain("tests") + (b"\0" if flexible else b"")
    request = header + body
    with _connected(kafka) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        return _receive(connection, size)[4:]


@contextmanager
def _connected(kafka: KafkaServer) -> Iterator[socket.socket]:
    host, _, port = kafka.bootstrap.partition(":")
    with socket.create_connection((host, int(port)), SERVER_TIMEOUT) as connection:
        yield connection


def _receive(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        part = connection.recv(size - len(got))
        assert part, "Kafka closed the connection"
        got += part
    return got


def _plain(text: str | None) -> bytes:
    """A string as the older requests have it."""
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def _compact(text: str | None) -> bytes:
    """A string as the newer requests have it; short ones only."""
    if text is None:
        return b"\0"
    assert len(text) < 127
    return bytes([len(text) + 1]) + text.encode()
