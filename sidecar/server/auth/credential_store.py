"""Certificates and tokens in use, read again when their files change.

Kubernetes swaps the folder of a Secret as one, some time after the Secret was changed. So the files are looked at
every second, and what is wrong with them is believed only when it is still wrong at the next look. Then it is
told, and what was there before stays in use: a mistake in a rotation must not lock everybody out.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, TypeVar

import grpc

from sidecar.model.errors import StartError
from sidecar.observability.logs import Log
from sidecar.server.auth import certificates, tokens
from sidecar.server.auth.certificates import Identity, date
from sidecar.server.auth.tokens import Tokens
from sidecar.settings import ClientSettings, ListenSettings

#: seconds between two looks at the files
EVERY = 1.0

T = TypeVar("T")
log = Log("access")


class _Watched(Generic[T]):
    """Something that is made of files: the last one that was good, and what is wrong with the files now."""

    def __init__(self, read: Callable[[T | None], T]) -> None:
        """`read` is given the last one that was good, to answer it again if nothing has changed."""
        self._read = read
        self.good = read(None)
        self.trouble = ""
        self._suspicion = ""

    async def look(self) -> T | None:
        """Answers what the files hold now, or None if they hold nothing good."""
        try:
            # In a thread: files may be on a network.
            now = await asyncio.to_thread(self._read, self.good)
        except StartError as error:
            found = str(error)
            if found == self._suspicion and found != self.trouble:
                self.trouble = found
                log.error("a rotated file is not good; what was there before stays in use", error=error)
            self._suspicion = found
            return None
        self.trouble = self._suspicion = ""
        return now


class CredentialStore:
    """All certificates and tokens of a sidecar. Raises `StartError` when it is made, and never again."""

    def __init__(self, listen: ListenSettings, clients: Mapping[str, ClientSettings]) -> None:
        self._identity = _Watched[Identity](partial(certificates.read, listen)) if listen.tls_certificate else None
        self._tokens = _Watched[Tokens](lambda _: tokens.read(clients))
        self._has_files = bool(listen.tls_certificate or clients)
        self._told_of_expiry = False

    @property
    def tokens(self) -> Tokens:
        return self._tokens.good

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a listener; each new connection sees the certificate that is in use then."""
        assert self._identity is not None
        watched = self._identity
        return grpc.dynamic_ssl_server_credentials(
            _configuration(watched.good),
            # Called by a thread of gRPC's, for each handshake.
            lambda: _configuration(watched.good),
            require_client_authentication=watched.good.client_ca is not None,
        )

    @property
    def expires(self) -> float | None:
        """Seconds since 1970: when the certificate in use does."""
        return None if self._identity is None else self._identity.good.expires

    def troubles(self) -> tuple[str, ...]:
        """What an operator should know, one sentence each."""
        found = [self._tokens.trouble]
        if self._identity is not None:
            found.append(self._identity.trouble)
            if self._identity.good.expires <= time.time():
                found.append("listen.tls_certificate: the certificate in use has expired, and clients refuse it")
        return tuple(filter(None, found))

    async def run(self) -> None:
        """Look again and again, if there is anything to look at."""
        told = ""
        while self._has_files:
            await asyncio.sleep(EVERY)
            try:
                await self.look()
                told = ""
            except Exception as error:
                # What nobody foresaw must not end the rotation: certificates expire, and tokens are taken away.
                if repr(error) != told:
                    log.bug("a look at certificates and tokens failed; it goes on", error)
                told = repr(error)

    async def look(self) -> None:
        """Take what the files hold now, if it is good."""
        now = await self._tokens.look()
        if now is not None and not now.same_as(self._tokens.good):
            now.keep(self._tokens.good)
            self._tokens.good = now
            log.info("took over new tokens")
        if self._identity is not None:
            await self._look_at_identity(self._identity)

    async def _look_at_identity(self, watched: _Watched[Identity]) -> None:
        now = await watched.look()
        if now is not None and now is not watched.good:
            watched.good = now
            log.info("took over a new certificate", expires=date(now.expires))
        expired = watched.good.expires <= time.time()
        if expired and not self._told_of_expiry:
            log.error("the certificate in use has expired, and clients refuse it", expires=date(watched.good.expires))
        self._told_of_expiry = expired


def _configuration(identity: Identity) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(identity.key, identity.certificate)], identity.client_ca)
