"""What one client can cost: connections, calls, large requests, and unread responses."""

import contextlib
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc

import offramp
from offramp.v1 import consumer_pb2, consumer_pb2_grpc, publish_pb2, publish_pb2_grpc, record_pb2
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually, refused
from tests.security.bare import BareClient
from tests.security.kit import Secured, attacking, fetch, tcp_address

MIB = 1 << 20


def connected(channel: grpc.Channel, within: float = 2.0) -> bool:
    try:
        grpc.channel_ready_future(channel).result(timeout=within)
    except grpc.FutureTimeoutError:
        return False
    return True


def test_connections_beyond_the_limit_are_closed_and_others_do_not_notice(tmp_path: Path) -> None:
    with Sidecar(tmp_path, listen={"max_connections": 3}) as sidecar:
        channels = [offramp.open_channel(sidecar.target) for _ in range(4)]
        try:
            assert all(connected(channel, WAIT_TIMEOUT) for channel in channels[:3])
            assert not connected(channels[3])
            assert not fetch(channels[0]).batches
            channels[1].close()
            eventually(lambda: connected(channels[3]))
        finally:
            for channel in channels:
                channel.close()


def test_calls_beyond_the_limit_wait_in_the_client(tmp_path: Path) -> None:
    with Sidecar(tmp_path, listen={"max_streams": 2}) as sidecar, offramp.open_channel(sidecar.target) as channel:
        stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
        streams = [stub.Open(consumer_pb2.OpenRequest(subscription="orders")) for _ in range(2)]
        for stream in streams:
            next(stream)
        with refused(grpc.StatusCode.DEADLINE_EXCEEDED):
            stub.Fetch(consumer_pb2.FetchRequest(subscription="orders"), timeout=0.5)
        with offramp.open_channel(sidecar.target) as other:
            assert not fetch(other).batches
        streams[0].cancel()
        assert not fetch(channel).batches


def test_a_request_beyond_the_limit_is_refused_and_the_next_one_is_not(tmp_path: Path) -> None:
    with Sidecar(tmp_path, listen={"max_request_bytes": "64KiB"}) as sidecar, sidecar.channel() as channel:
        stub = publish_pb2_grpc.PublishServiceStub(channel)

        def publish(size: int) -> publish_pb2.PublishResponse:
            messages = [publish_pb2.Message(value=bytes(size))]
            response: publish_pb2.PublishResponse = stub.Publish(
                publish_pb2.PublishRequest(broker="local", topic="orders", messages=messages), timeout=WAIT_TIMEOUT
            )
            return response

        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
            publish(65 << 10)
        assert publish(1_000).published


def test_an_app_makes_no_more_topics_than_configured(tmp_path: Path) -> None:
    brokers = {"local": {"type": "local", "directory": str(tmp_path / "data"), "max_topics": 5}}
    with Sidecar(tmp_path, brokers=brokers) as sidecar:
        # Two of the five are the topic of the subscription and the one for its retries.
        for number in range(3):
            sidecar.publish(f"topic-{number}", [b"1"])
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "`max_topics` is 5"):
            sidecar.publish("one-more", [b"1"])
        assert sidecar.publish("orders", [b"1"])


HEALTH = "/grpc.health.v1.Health/Check"


def shaken_hands(secured: Secured, sidecar: Sidecar) -> socket.socket:
    """A connection to the sidecar's TLS port that has sent no token so far."""
    context = ssl.create_default_context(cafile=str(secured.authority.certificate))
    context.set_alpn_protocols(["h2"])
    host, _, port = tcp_address(sidecar).rpartition(":")
    return context.wrap_socket(socket.create_connection((host, int(port)), WAIT_TIMEOUT), server_hostname="localhost")


def test_unfinished_requests_of_strangers_do_not_make_the_sidecar_fat(tmp_path: Path) -> None:
    """Health is for everybody, so its requests are not even read."""
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar:
        before = fat(sidecar)
        with BareClient(shaken_hands(secured, sidecar)) as stranger:
            calls = {stranger.call(HEALTH, bytes(4 * MIB - 1), whole=False) for _ in range(200)}
            stranger.pump()
            eventually(lambda: stranger.listen() == calls, "they were answered")
            assert fat(sidecar) - before < 40


def resetting(sidecar: Sidecar) -> AbstractContextManager[Callable[[], bytes]]:
    """An app that resets its calls. The function yielded returns when it has reset a thousand more."""
    return attacking("tests.security.resetter", sidecar.socket)


def test_rapid_resets_of_one_connection_leave_others_served(tmp_path: Path) -> None:
    subscriptions = {"orders": {"topics": ["orders"]}, "idle": {"topics": ["idle"]}}
    with (
        Sidecar(tmp_path, subscriptions=subscriptions) as sidecar,
        resetting(sidecar) as reset,
        offramp.connect("orders", address=sidecar.target) as consumer,
    ):
        assert reset(), "the app has ended"
        before = fat(sidecar)
        for number in range(30):
            assert reset(), "the app has ended"
            sidecar.publish("orders", [b"%d" % number])
            batch = consumer.take(WAIT_TIMEOUT)
            assert batch is not None
            assert [record.value for record in batch] == [b"%d" % number]
            batch.ack()
        eventually(lambda: sidecar.status().counters.acked == 30)
        assert fat(sidecar) - before < 60
        idle = sidecar.status("idle")
        assert (idle.leases, len(idle.sessions)) == (0, 0)


def test_sessions_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    with Sidecar(tmp_path, listen={"max_sessions": 1}) as sidecar, sidecar.consumer() as stub:
        stream = stub.Open(consumer_pb2.OpenRequest(subscription="orders"))
        next(stream)
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "listen.max_sessions"):
            next(stub.Open(consumer_pb2.OpenRequest(subscription="orders"), timeout=WAIT_TIMEOUT))
        stream.cancel()


def test_idle_connections_to_the_http_port_keep_no_probe_out(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar, contextlib.ExitStack() as idle:
        host, _, port = sidecar.http.rpartition(":")
        for _ in range(200):
            idle.enter_context(socket.create_connection((host, int(port)), WAIT_TIMEOUT))
        assert sidecar.get("/healthz") == (200, "ok\n")


class Deaf:
    """A client that asks for everything and reads nothing but the welcome."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._requests: SimpleQueue[consumer_pb2.ConsumeRequest] = SimpleQueue()
        credit = consumer_pb2.Credit(batches=1_000_000)
        self.say(hello=consumer_pb2.Hello(subscription="orders", credit=credit, max_message_bytes=1 << 30))
        self.stream = consumer_pb2_grpc.ConsumerServiceStub(channel).Consume(self._all())
        self.first = next(self.stream)

    def _all(self) -> Iterator[consumer_pb2.ConsumeRequest]:
        while True:
            yield self._requests.get()

    def say(self, **fields: Any) -> None:
        self._requests.put(consumer_pb2.ConsumeRequest(**fields))


def with_backlog(sidecar: Sidecar, megabytes: int) -> None:
    for _ in range(megabytes // 2):
        sidecar.publish("orders", [bytes(MIB)] * 2)


def fat(sidecar: Sidecar) -> float:
    return sidecar.metric("process_resident_memory_bytes") / MIB


SMALL = {"orders": {"topics": ["orders"], "memory": {"bytes": "8MiB"}, "window": {"bytes": "64MiB"}}}
#: much more than gRPC and the socket take before a write has to wait
LARGE = {"orders": {"topics": ["orders"], "memory": {"bytes": "32MiB"}, "window": {"bytes": "64MiB"}}}


def test_a_client_that_does_not_read_is_cut_off_and_its_batches_go_to_others(tmp_path: Path) -> None:
    with (
        Sidecar(tmp_path, subscriptions=LARGE, listen={"unread": "1s"}) as sidecar,
        grpc.insecure_channel(sidecar.target, [("grpc.max_receive_message_length", -1)]) as channel,
    ):
        with_backlog(sidecar, 120)
        deaf = Deaf(channel)
        eventually(lambda: sidecar.status().counters.delivered, "it was given something")
        eventually(lambda: not sidecar.status().sessions, "the session of the client that does not read has ended")
        assert sidecar.event("worker session lost: its batches are redelivered")
        got = set()
        with offramp.connect("orders", address=sidecar.target, max_message_bytes=1 << 26) as consumer:
            while len(got) < 120:
                batch = consumer.take(WAIT_TIMEOUT)
                assert batch is not None
                got |= {(record.lane, record.position) for record in batch}
                batch.ack()
        # When it reads again it finds what was on its way, and then why there is no more.
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "the client has not read for 1s (listen.unread)"):
            list(deaf.stream)


def test_a_client_that_does_not_read_does_not_make_the_sidecar_fat(tmp_path: Path) -> None:
    """Not even if it settles what it has not read, by guessing the leases, so that more and more is due to it."""
    with (
        Sidecar(tmp_path, subscriptions=SMALL) as sidecar,
        grpc.insecure_channel(sidecar.target, [("grpc.max_receive_message_length", -1)]) as channel,
    ):
        with_backlog(sidecar, 120)
        before = fat(sidecar)
        deaf = Deaf(channel)
        eventually(lambda: sidecar.status().leases)
        # Each batch is one record here; a lease is the boot id, the subscription's number and a counter.
        for number in range(1, 121):
            lease = deaf.first.welcome.boot + bytes(2) + number.to_bytes(6)
            deaf.say(settlements=[record_pb2.Settlement(lease=lease, outcome=record_pb2.OUTCOME_ACK)])
        eventually(lambda: sidecar.status().counters.unknown_settlements > 0, "it has come to leases not given out")
        assert sidecar.status().counters.acked > 0, "the guesses were right"
        assert fat(sidecar) - before < 40
        deaf.stream.cancel()


def fetched(channel: grpc.Channel) -> Sequence[record_pb2.Batch] | None:
    """None if it is refused because too much was left unread."""
    try:
        return fetch(channel).batches
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "read them before asking for more" in error.details():
            return None
        raise


def test_answers_to_fetch_that_are_not_read_do_not_make_the_sidecar_fat(tmp_path: Path) -> None:
    """Not even if what is in them is settled by another connection, so that more and more is due."""
    with Sidecar(tmp_path, subscriptions=SMALL) as sidecar, sidecar.channel() as channel:
        with_backlog(sidecar, 200)
        before = fat(sidecar)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(sidecar.socket))
        with BareClient(connection, window=0) as deaf:
            want = consumer_pb2.Credit(batches=1)
            request = consumer_pb2.FetchRequest(subscription="orders", want=want, wait_ms=60_000)
            for _ in range(200):
                deaf.call("/offramp.v1.ConsumerService/Fetch", request.SerializeToString())
            deaf.pump()
            # Each batch is one record here; a lease is the boot id, the subscription's number and a counter.
            stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
            boot = next(stub.Open(consumer_pb2.OpenRequest(subscription="orders"))).welcome.boot
            leases = [boot + bytes(2) + number.to_bytes(6) for number in range(1, 201)]
            settlements = [record_pb2.Settlement(lease=lease, outcome=record_pb2.OUTCOME_ACK) for lease in leases]

            def calls_left() -> bool:
                stub.Settle(consumer_pb2.SettleRequest(settlements=settlements), timeout=WAIT_TIMEOUT)
                return len(deaf.listen()) < 200 - sidecar.status().counters.acked

            eventually(lambda: not calls_left(), "all calls have been answered, or refused")
            assert sidecar.status().counters.acked > 60, "the guesses were right"
            assert fat(sidecar) - before < 160
            assert fetched(channel) is None
        eventually(lambda: fetched(channel), "whoever is gone leaves nothing behind")


def test_a_client_on_another_machine_that_gives_no_sign_of_life_is_given_up(tmp_path: Path) -> None:
    """On the socket it never is: there the kernel reports a dead client. See tests/e2e/test_blocked.py."""
    secured = Secured(tmp_path)
    with secured.sidecar(listen=secured.listen(silence="2s")) as sidecar:
        sidecar.publish("orders", [b"1"])
        access = secured.access(sidecar, "app")
        code = f"import offramp\nwith offramp.connect('orders', **{access!r}) as it: it.take(); it.take()"
        worker = subprocess.Popen([sys.executable, "-c", code])
        try:
            eventually(lambda: sidecar.status().leases == 1)
            worker.send_signal(signal.SIGSTOP)
            eventually(lambda: sidecar.status().counters.abandoned, "its batch was taken back")
        finally:
            worker.kill()
            worker.wait(WAIT_TIMEOUT)


def test_whoever_does_not_shake_hands_is_sent_away(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar:
        host, _, port = tcp_address(sidecar).rpartition(":")
        with socket.create_connection((host, int(port)), WAIT_TIMEOUT) as silent:
            # The timeout of this socket is twice as long as a handshake may take.
            assert silent.recv(1) == b""
