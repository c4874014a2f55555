"""What a scenario plays on: a sidecar, a subscription of its own, and the client under test."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import grpc

from offramp.v1 import admin_pb2, admin_pb2_grpc, consumer_pb2, consumer_pb2_grpc, publish_pb2, publish_pb2_grpc
from offramp.v1.record_pb2 import OUTCOME_ACK, Header, Record
from tests.clients.scenarios.clients import Client
from tests.clients.scenarios.runner import Runner
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually

Transport = Literal["unix", "tcp", "tls"]
#: names of subscriptions end so
REPLIES, OTHER = "-replies", "-other"
#: retries at once, if not told otherwise
QUICKLY = {"retry": {"first": "1ms", "jitter": 0}}
#: a retry that counts is not seen again; nothing is parked, so that a retry topic plays no part
NEVER = {"retry": {"first": "1h", "max": "1h"}, "parking": {"enabled": False}}


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a scenario asks of its subscription. `replies` and `other` ask for two more."""

    settings: Mapping[str, Any]
    replies: bool = False
    other: bool = False

    def subscriptions(self, name: str) -> dict[str, Mapping[str, Any]]:
        made: dict[str, Mapping[str, Any]] = {name: {"topics": [name], **QUICKLY, **self.settings}}
        if self.replies:
            made[name + REPLIES] = {"topics": [name + REPLIES]}
        if self.other:
            made[name + OTHER] = {"topics": [name + OTHER], **QUICKLY, **self.settings}
        return made


class ScenarioEnvironment:
    """One scenario, by one client, over one transport."""

    def __init__(
        self,
        sidecar: Sidecar,
        client: Client,
        scenario: str,
        transport: Transport,
        address: str = "",
        access: Mapping[str, str] | None = None,
    ) -> None:
        self.sidecar = sidecar
        self.subscription = name_of(scenario, transport)
        self._client = client
        self.scenario = scenario
        self._transport = transport
        self._address = address
        #: what the environment says of tokens and certificates
        self._access = access or {}

    def runner(self, *, part: int = 1, records: int = 0, address: str = "") -> Runner:
        """Start the client's runner. `address`: what it connects to instead."""
        environment = {
            "OFFRAMP_ADDRESS": address or self._address or address_of(self.sidecar, self._transport),
            **self._access,
            "SCENARIO_SUBSCRIPTION": self.subscription,
            "SCENARIO_OTHER_SUBSCRIPTION": self.subscription + OTHER,
            "SCENARIO_REPLY_TOPIC": self.subscription + REPLIES,
            "SCENARIO_RECORDS": str(records),
            "SCENARIO_PART": str(part),
        }
        return Runner(self._client, self.scenario, environment)

    # Records in and out

    def publish(self, *messages: publish_pb2.Message, to: str = "") -> None:
        request = publish_pb2.PublishRequest(broker="local", topic=self.subscription + to, messages=messages)
        with self.sidecar.channel() as channel:
            publish_pb2_grpc.PublishServiceStub(channel).Publish(request, timeout=WAIT_TIMEOUT)

    def publish_numbers(self, until: int, *, start: int = 0, lane: int | None = None) -> None:
        self.publish(*(publish_pb2.Message(value=b"%d" % number, lane=lane) for number in range(start, until)))

    def replies(self, count: int) -> list[Record]:
        """What was published to the topic for replies: exactly so many."""
        found: list[Record] = []
        with grpc.insecure_channel(self.sidecar.target, [("grpc.max_receive_message_length", -1)]) as channel:
            stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
            done: list[Any] = []
            while True:
                request = consumer_pb2.FetchRequest(
                    subscription=self.subscription + REPLIES,
                    settlements=done,
                    wait_ms=10_000 if len(found) < count else 0,
                    max_message_bytes=64 << 20,
                )
                batches = stub.Fetch(request, timeout=WAIT_TIMEOUT).batches
                if not batches:
                    assert len(found) == count, found
                    return found
                found += [record for batch in batches for record in batch.records]
                done = [{"lease": batch.lease, "outcome": OUTCOME_ACK} for batch in batches]

    # What the sidecar shows

    def status(self, of: str = "") -> admin_pb2.SubscriptionStatus:
        return self.sidecar.status(self.subscription + of)

    def counts(self, of: str = "", **expected: int) -> None:
        """The counters come to these values, and those that are not named to none.

        Releases are the exception: a client gives back what it has prefetched and cannot begin soon, which depends on
        how busy the machine is. There may be more of them than expected.
        """
        wanted = {**dict.fromkeys(_COUNTERS, 0), **expected}
        last: dict[str, int] = {}

        def seen() -> bool:
            counters = self.status(of).counters
            last.update({name: getattr(counters, name) for name in _COUNTERS})
            exact = {**last, "released": min(last["released"], wanted["released"])}
            return exact == wanted

        try:
            eventually(seen)
        except AssertionError:
            wrong = {name: (last[name], wanted[name]) for name in _COUNTERS if last[name] != wanted[name]}
            raise AssertionError(f"the sidecar counted (first) what it should not have (second): {wrong}") from None

    def all_is_committed(self, of: str = "") -> None:
        eventually(
            lambda: all(lane.committed == lane.end for lane in self.status(of).lanes if not lane.parked),
            "all is committed",
        )

    def nobody_is_left(self, of: str = "") -> None:
        eventually(lambda: not self.status(of).sessions, "all sessions have ended")

    def dead_letters(self) -> list[admin_pb2.DeadLetter]:
        request = admin_pb2.ListDeadLettersRequest(subscription=self.subscription)
        with self.sidecar.channel() as channel:
            answers = admin_pb2_grpc.AdminServiceStub(channel).ListDeadLetters(request, timeout=WAIT_TIMEOUT)
            return [one for answer in answers for one in answer.dead_letters]

    @property
    def committed(self) -> int:
        """Records, as the positions of the local broker count them from 0."""
        return sum(lane.committed for lane in self.status().lanes if not lane.parked)


_COUNTERS = (
    "acked", "nacked", "rejected", "released", "overloaded", "expired", "abandoned", "dead_lettered", "dropped",
    "parked", "stale_settlements", "unknown_settlements", "refused_settlements",
)  # fmt: skip


def name_of(scenario: str, transport: Transport) -> str:
    return f"{scenario}-{transport}"


def address_of(sidecar: Sidecar, transport: Transport) -> str:
    return sidecar.target if transport == "unix" else sidecar.event("ready")["tcp"]


def contents(records: Iterable[Record | publish_pb2.Message]) -> Counter[Any]:
    """Key, value and headers, with None for what is absent, to be compared as a set."""

    def value_of(one: Record | publish_pb2.Message | Header, field: Literal["key", "value"]) -> bytes | None:
        return getattr(one, field) if one.HasField(field) else None

    return Counter(
        (
            value_of(one, "key"),
            value_of(one, "value"),
            tuple((header.name, value_of(header, "value")) for header in one.headers),
        )
        for one in records
    )
