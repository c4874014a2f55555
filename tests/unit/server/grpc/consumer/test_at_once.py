"""What is ready is delivered within the callback that read the request."""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TypeVar

from offramp.v1 import consumer_pb2 as pb
from sidecar.model.records import ClientInfo
from sidecar.server.grpc.consumer.fetch_session import FetchSession, fetch_alone
from sidecar.server.grpc.consumer.sessions import Terms
from sidecar.server.subscriptions import SubscriptionRegistry, lease_prefix
from sidecar.settings import BatchSettings
from sidecar.subscription.subscription import Subscription
from tests.kit import chunk, lane_state, subscription_settings
from tests.memory_broker import MemoryBroker
from tests.unit.server.grpc.service_kit import ONE, SETTLED, Kit, in_loop, settlement, with_sidecar

T = TypeVar("T")
BOOT = b"12345678"
TERMS = Terms(ClientInfo(), 1 << 20, None)


@dataclass
class Setup:
    """Ten records, in batches of one."""

    subscription: Subscription
    registry: SubscriptionRegistry

    @classmethod
    def make(cls) -> "Setup":
        prefix = lease_prefix(BOOT, 0)
        settings = subscription_settings(batch=BatchSettings(records=1))
        subscription = Subscription(settings, MemoryBroker(), prefix=prefix)
        state = lane_state()
        subscription.tracker.add_lane(state)
        subscription.tracker.track(state, chunk([*range(10)]), 0.0)
        return cls(subscription, SubscriptionRegistry(BOOT, {prefix: subscription}))


def at_once(call: Coroutine[object, object, T]) -> T:
    """The result of a call that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waits")


@in_loop
async def test_a_fetch_of_a_session_does_not_wait_for_what_is_ready() -> None:
    setup = Setup.make()
    session = FetchSession(setup.subscription, setup.registry, TERMS)
    first = pb.FetchResponse.FromString(
        at_once(session.fetch(pb.FetchRequest(session=session.id, seq=1, wait_ms=1_000), lambda: None))
    )
    acks = [settlement(batch) for batch in first.batches]
    request = pb.FetchRequest(session=session.id, seq=2, wait_ms=1_000, settlements=acks)
    second = pb.FetchResponse.FromString(at_once(session.fetch(request, lambda: None)))
    assert [result.status for result in second.results] == [SETTLED]
    assert [len(response.batches) for response in (first, second)] == [1, 1]


@in_loop
async def test_a_fetch_alone_does_not_wait_for_what_is_ready() -> None:
    setup = Setup.make()
    request = pb.FetchRequest(subscription="orders", want=pb.Credit(batches=3), wait_ms=1_000)
    response = at_once(fetch_alone(request, setup.subscription, setup.registry, lambda: None))
    assert len(pb.FetchResponse.FromString(response).batches) == 3


@with_sidecar(batch=ONE)
async def test_the_result_of_an_ack_and_the_batch_that_it_makes_room_for_are_one_response(kit: Kit) -> None:
    await kit.publish([b"a", b"b", b"c"])
    await kit.until(lambda status: status.counters.fetched == 3)
    stream = await kit.stream()
    batch = await stream.batch()
    before = stream.responses
    for answered in (1, 2):
        await stream.settle(settlement(batch))
        await stream.result()
        batch = await stream.batch()
        assert stream.responses == before + answered
