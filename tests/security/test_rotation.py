"""Files that change while the sidecar serves: no connection is dropped, and bad files change nothing."""

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import grpc

import offramp
from offramp.v1 import consumer_pb2, consumer_pb2_grpc
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually, refused
from tests.security.authority import Authority, Pair
from tests.security.kit import TOKENS, Secured, fetch, secret_file, status, tcp_address


class Volume:
    """A folder of a Secret as Kubernetes makes it: names are links into `..data`, which is a link that is swapped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._version = 0
        folder.mkdir()

    def put(self, *, mode: int = 0o440, **files: bytes) -> None:
        self._version += 1
        version = self.folder / f"..{self._version}"
        version.mkdir()
        for name, content in files.items():
            path = version / name
            path.write_bytes(content)
            path.chmod(mode)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(Path("..data") / name)
        fresh = self.folder / "..data_tmp"
        fresh.symlink_to(version.name)
        fresh.rename(self.folder / "..data")

    def put_pair(self, pair: Pair, *, mode: int = 0o440) -> None:
        self.put(mode=mode, tls_crt=pair.certificate.read_bytes(), tls_key=pair.key.read_bytes())

    def settings(self) -> dict[str, str]:
        return {"tls_certificate": str(self.folder / "tls_crt"), "tls_key": str(self.folder / "tls_key")}


def shown_certificate(sidecar: Sidecar) -> str:
    """The certificate that a new connection gets."""
    host, _, port = tcp_address(sidecar).rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=WAIT_TIMEOUT)


def wait_for_trouble(sidecar: Sidecar, words: str) -> None:
    def told() -> bool:
        with sidecar.channel() as channel:
            return any(words in sentence for sentence in status(channel).trouble)

    eventually(told, f"the status tells of: {words}")


def wait_for_no_trouble(sidecar: Sidecar) -> None:
    def quiet() -> bool:
        with sidecar.channel() as channel:
            return not status(channel).trouble

    eventually(quiet, "the status tells of no trouble")


def test_a_new_certificate_is_shown_to_new_connections_and_no_old_one_is_dropped(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    volume = Volume(tmp_path / "volume")
    volume.put_pair(secured.server)
    renewed = secured.authority.sign("localhost")
    listen = {**secured.listen(), **volume.settings()}
    with secured.sidecar(listen=listen) as sidecar, secured.channel(sidecar, "app") as channel:
        stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
        stream = stub.Open(consumer_pb2.OpenRequest(subscription="orders"))
        session = next(stream).welcome.session
        first = shown_certificate(sidecar)
        volume.put_pair(renewed)
        eventually(lambda: shown_certificate(sidecar) != first)
        assert shown_certificate(sidecar).strip() == renewed.certificate.read_text().strip()
        assert sidecar.event("reloaded the certificate")
        # The session, its stream and its connection are those from before.
        assert not stub.Fetch(consumer_pb2.FetchRequest(session=session, seq=1), timeout=WAIT_TIMEOUT).batches
        stream.cancel()
        with secured.channel(sidecar, "app") as fresh:
            assert not fetch(fresh).batches


def spoilings(secured: Secured, volume: Volume) -> Iterator[str]:
    """Rotations with bad files, one after the other, and the error of each."""
    volume.put_pair(secured.authority.sign("localhost", ends="20200202000000Z"))
    yield "has expired, at 2020-02-02T00:00:00Z"
    volume.put_pair(Pair(secured.server.certificate, secured.authority.sign("localhost").key))
    yield "is not the key of the certificate"
    volume.put(tls_crt=b"nonsense\n", tls_key=secured.server.key.read_bytes())
    yield "has no certificate in PEM form"
    volume.put(tls_crt=b"", tls_key=b"")
    yield "is empty"
    volume.put_pair(secured.authority.sign("localhost"), mode=0o444)
    yield "is accessible to every user (mode 0444)"
    (volume.folder / "..data").unlink()
    yield "cannot be read: No such file"


def test_a_bad_certificate_keeps_the_old_one_and_is_told(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    volume = Volume(tmp_path / "volume")
    volume.put_pair(secured.server)
    listen = {**secured.listen(), **volume.settings()}
    with secured.sidecar(listen=listen) as sidecar:
        first = shown_certificate(sidecar)
        for number, said in enumerate(spoilings(secured, volume), 1):
            wait_for_trouble(sidecar, said)
            told = [event for event in sidecar.events() if event["level"] == "error"]
            assert [event["message"] for event in told] == [
                "cannot use a changed file; the previous content stays in use"
            ] * number
            assert said in told[-1]["error"]
            assert shown_certificate(sidecar) == first
            with secured.channel(sidecar, "app") as channel:
                assert not fetch(channel).batches
            volume.put_pair(secured.server)
            wait_for_no_trouble(sidecar)


def test_another_authority_of_clients_is_taken_over(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    other = Authority(tmp_path / "other")
    volume = Volume(tmp_path / "volume")
    volume.put(ca=secured.authority.certificate.read_bytes())
    listen = {**secured.listen(), "tls_client_ca": str(volume.folder / "ca")}
    with secured.sidecar(listen=listen, clients={}) as sidecar:

        def let_in(pair: Pair) -> bool:
            mine = {"certificate": str(pair.certificate), "key": str(pair.key)}
            with secured.channel(sidecar, **mine) as channel:
                try:
                    fetch(channel)
                except grpc.RpcError:
                    return False
            return True

        old, new = secured.authority.sign("client"), other.sign("client")
        assert (let_in(old), let_in(new)) == (True, False)
        volume.put(ca=other.certificate.read_bytes())
        eventually(lambda: let_in(new))
        assert not let_in(old)


def test_tokens_overlap_while_they_rotate_and_nobody_is_dropped(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    fresh = "app-renewed-0123456789"
    mine = secret_file(tmp_path / "mine", TOKENS["app"] + "\n")
    with secured.sidecar() as sidecar:
        access = {**secured.access(sidecar), "token": None, "token_file": str(mine)}
        with offramp.connect("orders", **access) as consumer:
            eventually(lambda: consumer.connected)
            secured.token_file("app", TOKENS["app"], fresh)
            sidecar.event("reloaded tokens")
            with secured.channel(sidecar, token=fresh) as channel:
                assert not fetch(channel).batches
            assert consumer.connected
            # The client has the new one from here on; the session goes on with the old one until that is taken away.
            secret_file(mine, fresh + "\n")
            secured.token_file("app", fresh)

            def old_is_gone() -> bool:
                with secured.channel(sidecar, "app") as channel:
                    try:
                        fetch(channel)
                    except grpc.RpcError as error:
                        return error.code() is grpc.StatusCode.UNAUTHENTICATED
                return False

            eventually(old_is_gone)
            sidecar.publish("orders", [b"after the rotation"])
            batch = consumer.take(WAIT_TIMEOUT)
            assert batch is not None
            assert [record.value for record in batch] == [b"after the rotation"]
            batch.ack()


def test_a_token_that_is_taken_away_ends_the_streams_that_came_in_with_it(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar, secured.channel(sidecar, "app") as channel:
        stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
        stream = stub.Open(consumer_pb2.OpenRequest(subscription="orders"))
        next(stream)
        secured.token_file("app", TOKENS["nobody"])
        with refused(grpc.StatusCode.UNAVAILABLE, 'the token of client "app" is no longer valid'):
            next(stream)
        with refused(grpc.StatusCode.UNAUTHENTICATED):
            next(stub.Open(consumer_pb2.OpenRequest(subscription="orders"), timeout=WAIT_TIMEOUT))
        # Others do not notice.
        with secured.channel(sidecar, "operator") as others:
            assert status(others).version
            assert not status(others).subscriptions[0].sessions


def test_a_bad_token_file_keeps_the_old_tokens_and_is_told(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar:
        for content, mode, said in (
            ("", 0o600, "is empty"),
            ("short\n", 0o600, "a token has 16 to 4096 characters"),
            (TOKENS["nobody"] + "\n", 0o644, "is accessible to every user (mode 0644)"),
        ):
            secret_file(tmp_path / "next", content, mode).rename(tmp_path / "app.token")
            wait_for_trouble(sidecar, said)
            assert said in sidecar.get("/")[1], "the status page tells it"
            with secured.channel(sidecar, "app") as channel:
                assert not fetch(channel).batches
        os.unlink(tmp_path / "app.token")
        wait_for_trouble(sidecar, "No such file")
        secured.token_file("app")
        wait_for_no_trouble(sidecar)
        assert TOKENS["nobody"] not in sidecar.log
