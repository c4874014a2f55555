"""Sessions that outlive their connection: over TCP, through a proxy that cuts connections."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from offramp.v1 import admin_pb2, consumer_pb2, consumer_pb2_grpc
from sidecar.settings import LeaseSettings, Seconds
from tests.chaos.proxy import Proxy
from tests.servers.process import free_ports
from tests.unit.server.grpc.consumer.fetch_kit import refused, values
from tests.unit.server.grpc.service_kit import (
    NACK,
    ONE,
    SETTLED,
    STALE,
    WAIT_TIMEOUT,
    AsyncTest,
    Kit,
    Stream,
    Test,
    ended,
    error_of,
    serving,
    settlement,
    within,
)

#: milliseconds that no test waits for
LONG = 60_000


class Line:
    """Ways to the sidecar that can be cut."""

    def __init__(self, proxy: Proxy, address: str) -> None:
        self.cut = lambda: proxy.tell("cut")
        self._address = address
        self._channels: list[grpc.aio.Channel] = []

    def stub(self) -> consumer_pb2_grpc.ConsumerServiceStub:
        """Of a new connection."""
        channel = grpc.aio.insecure_channel(self._address, [("grpc.use_local_subchannel_pool", 1)])
        self._channels.append(channel)
        return consumer_pb2_grpc.ConsumerServiceStub(channel)

    async def stream(self, *, resume_ms: int = LONG, **hello: Any) -> Stream:
        stream = Stream(self.stub())
        await stream.hello(resume_ms=resume_ms, **hello)
        # The result shows that the sidecar has read a request after `hello`.
        await stream.send(extensions=[{"lease": b"unknown"}])
        await stream.extended()
        return stream

    async def open(self, **request: Any) -> tuple[Any, consumer_pb2.Welcome]:
        call = self.stub().Open(consumer_pb2.OpenRequest(subscription="orders", **request))
        async with asyncio.timeout(WAIT_TIMEOUT):
            return call, (await call.read()).welcome

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


def over_tcp(**settings: Any) -> Callable[[AsyncTest], Test]:
    """Decorates an async test that takes a `Kit` and a `Line`."""

    @asynccontextmanager
    async def enter(folder: Path) -> AsyncIterator[tuple[Kit, Line]]:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        listen = {"tcp": address, **settings.pop("listen", {})}
        proxy = Proxy(address)
        async with serving(folder, listen=listen, **settings) as kit:
            server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
            host, port = server.sockets[0].getsockname()
            line = Line(proxy, f"{host}:{port}")
            try:
                yield kit, line
            finally:
                await line.close()
                server.close()

    return within(2, enter)


def away(status: admin_pb2.SubscriptionStatus) -> bool:
    return any(session.away_ms for session in status.sessions)


@over_tcp(batch=ONE)
async def test_a_session_goes_on_with_its_leases_after_its_connection_was_cut(kit: Kit, line: Line) -> None:
    await kit.publish([b"a", b"b"])
    stream = await line.stream()
    assert stream.welcome.resume_ms == LONG
    assert "resume" in stream.welcome.features
    batch = await stream.batch()
    line.cut()
    await kit.until(away)
    again = await line.stream(resume=stream.welcome.session, held=[batch.lease])
    assert again.welcome.session == stream.welcome.session
    await again.settle(settlement(batch))
    assert (await again.result()).status == SETTLED
    assert (await again.batch()).records[0].value == b"b"
    status = await kit.status()
    assert (status.counters.acked, status.counters.abandoned, status.counters.resumed_sessions) == (1, 0, 1)
    assert not away(status)


@over_tcp(batch=ONE)
async def test_what_a_session_holds_goes_to_others_once_its_time_is_over(kit: Kit, line: Line) -> None:
    await kit.publish([b"a"])
    stream = await line.stream(resume_ms=50)
    await stream.batch()
    line.cut()
    other = await kit.stream()
    (redelivery,) = (await other.batch()).redeliveries
    assert (redelivery.attempt, redelivery.possibly_processed) == (2, True)
    late = await line.stream(resume=stream.welcome.session)
    assert late.welcome.session != stream.welcome.session
    assert (await kit.status()).counters.abandoned == 1


@over_tcp(batch=ONE)
async def test_a_session_that_is_away_gets_no_batches(kit: Kit, line: Line) -> None:
    await kit.publish([b"a", b"b"])
    stream = await line.stream(batches=2)
    await stream.batch()
    await stream.batch()
    line.cut()
    await kit.until(away)
    await kit.publish([b"c"])
    other = await kit.stream()
    assert (await other.batch()).records[0].value == b"c"
    await other.no_batch()


@over_tcp(batch=ONE)
async def test_what_the_client_does_not_hold_comes_again_uncounted_and_flagged(kit: Kit, line: Line) -> None:
    await kit.publish([b"a", b"b"])
    stream = await line.stream(batches=2)
    first, second = await stream.batch(), await stream.batch()
    line.cut()
    await kit.until(away)
    again = await line.stream(batches=2, resume=stream.welcome.session, held=[first.lease])
    batch = await again.batch()
    assert (batch.records, batch.lease != second.lease) == (second.records, True)
    (redelivery,) = batch.redeliveries
    assert (redelivery.attempt, redelivery.possibly_processed) == (1, True)
    await again.settle(settlement(first), settlement(batch))
    assert [(await again.result()).status for _ in range(2)] == [SETTLED, SETTLED]
    status = await kit.status()
    assert (status.counters.acked, status.counters.released, status.counters.abandoned) == (2, 1, 0)


@over_tcp(batch=ONE)
async def test_a_settlement_whose_result_was_lost_gets_the_same_result_again(kit: Kit, line: Line) -> None:
    await kit.publish([b"a", b"b"])
    stream = await line.stream(batches=2)
    first, second = await stream.batch(), await stream.batch()
    await stream.settle(settlement(first))
    await stream.result()
    line.cut()
    await kit.until(away)
    again = await line.stream(resume=stream.welcome.session, held=[first.lease, second.lease])
    await again.settle(settlement(first), settlement(second))
    assert [(await again.result()).status for _ in range(2)] == [SETTLED, SETTLED]
    assert (await kit.status()).counters.acked == 2


@over_tcp(batch=ONE)
async def test_resuming_ends_the_former_stream_if_it_is_still_there(kit: Kit, line: Line) -> None:
    await kit.publish([b"a", b"b"])
    stream = await line.stream()
    batch = await stream.batch()
    again = await line.stream(resume=stream.welcome.session, held=[batch.lease])
    assert again.welcome.session == stream.welcome.session
    assert await stream.end() is grpc.StatusCode.ABORTED
    assert (await error_of(stream.call)).reason == "SUPERSEDED"
    await again.settle(settlement(batch))
    assert (await again.result()).status == SETTLED
    assert (await again.batch()).records[0].value == b"b"
    await kit.until(lambda status: len(status.sessions) == 1)


@over_tcp(batch=ONE)
async def test_without_asking_the_leases_of_a_lost_connection_end(kit: Kit, line: Line) -> None:
    await kit.publish([b"a"])
    stream = await line.stream(resume_ms=0)
    assert stream.welcome.resume_ms == 0
    await stream.batch()
    line.cut()
    await kit.until(lambda status: status.counters.abandoned == 1)
    again = await line.stream(resume=stream.welcome.session)
    assert again.welcome.session != stream.welcome.session
    assert (await again.batch()).redeliveries[0].attempt == 2


@over_tcp(batch=ONE)
async def test_a_client_that_may_not_have_got_its_welcome_is_not_waited_for(kit: Kit, line: Line) -> None:
    await kit.publish([b"a"])
    stream = Stream(line.stub())
    await stream.hello(resume_ms=LONG)
    await stream.batch()
    line.cut()
    await kit.until(lambda status: status.counters.abandoned == 1)


@over_tcp(batch=ONE)
async def test_on_the_socket_there_is_nothing_to_resume(kit: Kit, line: Line) -> None:
    await kit.publish([b"a", b"b"])
    local = await kit.stream(resume_ms=LONG)
    assert local.welcome.resume_ms == 0
    await local.batch()
    local.call.cancel()
    await kit.until(lambda status: status.counters.abandoned == 1)
    remote = await line.stream()
    await remote.batch()
    thief = await kit.stream(resume=remote.welcome.session)
    assert thief.welcome.session != remote.welcome.session
    await kit.until(lambda status: len(status.sessions) == 2)


@over_tcp(listen={"resume_max": Seconds(0.05)}, batch=ONE)
async def test_nobody_gets_more_time_than_the_settings_allow(kit: Kit, line: Line) -> None:
    await kit.publish([b"a"])
    stream = await line.stream()
    assert stream.welcome.resume_ms == 50
    await stream.batch()
    line.cut()
    await kit.until(lambda status: status.counters.abandoned == 1)


@over_tcp(batch=ONE)
async def test_a_session_without_leases_ends_with_its_connection(kit: Kit, line: Line) -> None:
    await line.stream()
    line.cut()
    await kit.until(lambda status: not status.sessions)
    assert not (await kit.status()).counters.abandoned


@over_tcp(batch=ONE, lease=LeaseSettings(max=Seconds(0.2), default=Seconds(0.2)))
async def test_the_time_of_a_lease_goes_on_while_its_session_is_away(kit: Kit, line: Line) -> None:
    await kit.publish([b"a"])
    stream = await line.stream()
    batch = await stream.batch()
    line.cut()
    await kit.until(lambda status: status.counters.expired == 1)
    other = await kit.stream()
    await other.batch()
    again = await line.stream(batches=0, resume=stream.welcome.session, held=[batch.lease])
    await again.settle(settlement(batch))
    assert (await again.result()).status == STALE


@over_tcp(batch=ONE)
async def test_a_client_that_was_leaving_is_not_waited_for(kit: Kit, line: Line) -> None:
    await kit.publish([b"a"])
    stream = await line.stream()
    batch = await stream.batch()
    # Its result says that the sidecar has read `draining`.
    await stream.send(draining=True, extensions=[{"lease": batch.lease, "lease_for_ms": 1}])
    await stream.extended()
    line.cut()
    await kit.until(lambda status: status.counters.abandoned == 1)


@over_tcp(batch=ONE)
async def test_a_client_that_breaks_a_rule_is_not_waited_for(kit: Kit, line: Line) -> None:
    await kit.publish([b"a"])
    stream = await line.stream()
    await stream.batch()
    await stream.send(hello=consumer_pb2.Hello())
    assert await stream.end() is grpc.StatusCode.INVALID_ARGUMENT
    await kit.until(lambda status: status.counters.abandoned == 1)


@over_tcp(listen={"max_sessions": 1}, batch=ONE)
async def test_a_session_that_is_away_counts_and_is_always_let_in_again(kit: Kit, line: Line) -> None:
    await kit.publish([b"a"])
    stream = await line.stream()
    batch = await stream.batch()
    line.cut()
    await kit.until(away)
    other = Stream(kit.consumer)
    await other.send(hello=consumer_pb2.Hello(subscription="orders"))
    assert await other.end() is grpc.StatusCode.RESOURCE_EXHAUSTED
    again = await line.stream(resume=stream.welcome.session, held=[batch.lease])
    assert again.welcome.session == stream.welcome.session
    third = await line.stream(resume=stream.welcome.session, held=[batch.lease])
    assert third.welcome.session == stream.welcome.session


@over_tcp(batch=ONE)
async def test_a_session_can_be_resumed_and_settle_while_the_sidecar_drains(kit: Kit, line: Line) -> None:
    await kit.publish([b"a"])
    stream = await line.stream()
    batch = await stream.batch()
    line.cut()
    await kit.until(away)
    draining = asyncio.create_task(kit.sidecar.stop(WAIT_TIMEOUT))
    await kit.until(lambda status: status.state == admin_pb2.SUBSCRIPTION_STATE_DRAINING)
    again = await line.stream(resume=stream.welcome.session, held=[batch.lease])
    notice = await again.notice()
    assert notice.kind == consumer_pb2.NOTICE_KIND_DRAINING
    assert notice.settle_for_ms
    await again.settle(settlement(batch))
    assert (await again.result()).status == SETTLED
    await draining


@over_tcp(batch=ONE)
async def test_a_session_that_is_away_hears_of_lanes_that_are_gone(kit: Kit, line: Line) -> None:
    await kit.publish([b"a"])
    stream = await line.stream()
    batch = await stream.batch()
    line.cut()
    await kit.until(away)
    await kit.admin.Seek(admin_pb2.SeekRequest(subscription="orders", start=admin_pb2.SeekStart()))
    again = await line.stream(batches=0, resume=stream.welcome.session, held=[batch.lease])
    notice = await again.notice()
    assert (notice.kind, [*notice.leases]) == (consumer_pb2.NOTICE_KIND_REVOKED, [batch.lease])
    await again.settle(settlement(batch, NACK))
    assert (await again.result()).status == STALE


@over_tcp(batch=ONE)
async def test_a_session_is_resumed_again_and_again(kit: Kit, line: Line) -> None:
    await kit.publish([b"%d" % number for number in range(5)])
    stream = await line.stream()
    session = stream.welcome.session
    for number in range(5):
        batch = await stream.batch()
        assert batch.records[0].value == b"%d" % number
        line.cut()
        stream = await line.stream(resume=session, held=[batch.lease])
        assert stream.welcome.session == session
        await stream.settle(settlement(batch))
        assert (await stream.result()).status == SETTLED
    status = await kit.status()
    assert (status.counters.acked, status.counters.redelivered, status.counters.resumed_sessions) == (5, 0, 5)


@over_tcp(batch=ONE)
async def test_a_process_that_fetches_goes_on_with_its_numbers(kit: Kit, line: Line) -> None:
    await kit.publish([b"a", b"b"])
    _, welcome = await line.open(resume_ms=LONG)
    assert welcome.resume_ms == LONG
    first = consumer_pb2.FetchRequest(session=welcome.session, seq=1, wait_ms=LONG)
    answer = await line.stub().Fetch(first)
    line.cut()
    await kit.until(away)
    _, again = await line.open(resume_ms=LONG, resume=welcome.session)
    assert again.session == welcome.session
    # The answer may have been lost.
    assert await line.stub().Fetch(first) == answer
    second = consumer_pb2.FetchRequest(
        session=welcome.session, seq=2, wait_ms=LONG, settlements=[settlement(answer.batches[0])]
    )
    brought = await line.stub().Fetch(second)
    assert (brought.results[0].status, values(brought)) == (SETTLED, [b"b"])
    counters = (await kit.status()).counters
    assert (counters.acked, counters.redelivered, counters.abandoned) == (1, 0, 0)


@over_tcp(batch=ONE)
async def test_a_process_that_fetches_is_resumed_while_its_former_stream_is_there(kit: Kit, line: Line) -> None:
    await kit.publish([b"a"])
    call, welcome = await line.open(resume_ms=LONG)
    answer = await line.stub().Fetch(consumer_pb2.FetchRequest(session=welcome.session, seq=1, wait_ms=LONG))
    _, again = await line.open(resume_ms=LONG, resume=welcome.session)
    assert again.session == welcome.session
    assert await ended(call) is grpc.StatusCode.ABORTED
    settled = await line.stub().Fetch(
        consumer_pb2.FetchRequest(session=welcome.session, seq=2, settlements=[settlement(answer.batches[0])])
    )
    assert settled.results[0].status == SETTLED


@over_tcp(batch=ONE)
async def test_a_process_that_fetches_and_does_not_come_back_loses_its_session(kit: Kit, line: Line) -> None:
    await kit.publish([b"a"])
    _, welcome = await line.open(resume_ms=50)
    fetch = consumer_pb2.FetchRequest(session=welcome.session, seq=1, wait_ms=LONG)
    await line.stub().Fetch(fetch)
    line.cut()
    await kit.until(lambda status: status.counters.abandoned == 1)
    assert (await refused(kit.consumer.Fetch(fetch)))[0] is grpc.StatusCode.NOT_FOUND


@over_tcp(batch=ONE)
async def test_a_stream_does_not_resume_what_was_opened_and_the_other_way_round(kit: Kit, line: Line) -> None:
    stream = await line.stream()
    _, opened = await line.open(resume_ms=LONG)
    assert (await line.stream(resume=opened.session)).welcome.session != opened.session
    assert (await line.open(resume=stream.welcome.session))[1].session != stream.welcome.session
