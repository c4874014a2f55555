"""The certificate and tokens in use, reloaded when their files change.

The files are checked every second. Kubernetes replaces the folder of a Secret as a whole, some time after the Secret
was changed, so a problem counts only when the next check finds it again. Then it is logged, and the previous content
stays in use: a mistake in a rotation must not lock everybody out.
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

#: seconds between two checks of the files
_CHECK_INTERVAL = 1.0

T = TypeVar("T")
log = Log("access")


class _Watched(Generic[T]):
    """Something that is read from files: the last valid one, and what is wrong with the files now."""

    def __init__(self, read: Callable[[T | None], T]) -> None:
        """`read` is called with the last valid one, and may return it if nothing has changed."""
        self._read = read
        self.valid = read(None)
        self.trouble = ""
        self._unconfirmed = ""

    async def check(self) -> T | None:
        """Returns what the files hold now, or None if that is not valid."""
        try:
            # In a thread: files may be on a network.
            now = await asyncio.to_thread(self._read, self.valid)
        except StartError as error:
            found = str(error)
            if found == self._unconfirmed and found != self.trouble:
                self.trouble = found
                log.error("cannot use a changed file; the previous content stays in use", error=error)
            self._unconfirmed = found
            return None
        self.trouble = self._unconfirmed = ""
        return now


class CredentialStore:
    """The certificate and all tokens of a sidecar. The constructor raises `StartError`; nothing later does."""

    def __init__(self, listen: ListenSettings, clients: Mapping[str, ClientSettings]) -> None:
        self._identity = _Watched[Identity](partial(certificates.read, listen)) if listen.tls_certificate else None
        self._tokens = _Watched[Tokens](lambda _: tokens.read(clients))
        self._has_files = bool(listen.tls_certificate or clients)
        self._logged_expiry = False

    @property
    def tokens(self) -> Tokens:
        return self._tokens.valid

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a listener. Each new connection gets the certificate that is in use then."""
        assert self._identity is not None
        watched = self._identity
        return grpc.dynamic_ssl_server_credentials(
            _configuration(watched.valid),
            # Called on a thread of gRPC for each handshake.
            lambda: _configuration(watched.valid),
            require_client_authentication=watched.valid.client_ca is not None,
        )

    @property
    def expires(self) -> float | None:
        """When the certificate in use expires, in seconds since 1970; None without TLS."""
        return None if self._identity is None else self._identity.valid.expires

    def troubles(self) -> tuple[str, ...]:
        """What an operator should know, as sentences."""
        found = [self._tokens.trouble]
        if self._identity is not None:
            found.append(self._identity.trouble)
            if self._identity.valid.expires <= time.time():
                found.append("listen.tls_certificate: the certificate in use has expired, and clients refuse it")
        return tuple(filter(None, found))

    async def run(self) -> None:
        """Check the files at intervals. Returns at once if there are none."""
        logged = ""
        while self._has_files:
            await asyncio.sleep(_CHECK_INTERVAL)
            try:
                await self.check()
                logged = ""
            except Exception as error:
                # Checking must go on: certificates expire, and tokens are revoked.
                if repr(error) != logged:
                    log.bug("unhandled exception while checking certificates and tokens", error)
                logged = repr(error)

    async def check(self) -> None:
        """Use what the files hold now, if it is valid."""
        now = await self._tokens.check()
        if now is not None and not now.same_as(self._tokens.valid):
            now.replace(self._tokens.valid)
            self._tokens.valid = now
            log.info("reloaded tokens")
        if self._identity is not None:
            await self._check_identity(self._identity)

    async def _check_identity(self, watched: _Watched[Identity]) -> None:
        now = await watched.check()
        if now is not None and now is not watched.valid:
            watched.valid = now
            log.info("reloaded the certificate", expires=date(now.expires))
        expired = watched.valid.expires <= time.time()
        if expired and not self._logged_expiry:
            log.error("the certificate in use has expired, and clients refuse it", expires=date(watched.valid.expires))
        self._logged_expiry = expired


def _configuration(identity: Identity) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(identity.key, identity.certificate)], identity.client_ca)
