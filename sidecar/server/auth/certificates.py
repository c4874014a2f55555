"""The sidecar's own certificate and key, checked before clients see them.

The check is a TLS handshake of the sidecar with itself, in memory. A certificate that clients would refuse is refused
here, with an explanation, and before it replaces one that works.
"""

import ssl
import time
from dataclasses import dataclass

from sidecar.model import files
from sidecar.model.errors import StartError
from sidecar.settings import ListenSettings

#: X509_V_FLAG_NO_CHECK_TIME: the validity is checked here, for a better message
_NO_CHECK_TIME = 0x200000
#: the files may be replaced while they are read
_MAX_TRIES = 5


@dataclass(frozen=True, slots=True)
class Identity:
    """What a TLS listener presents to clients, and which certificates it accepts from them."""

    certificate: bytes
    key: bytes
    #: PEM of the authorities of clients' certificates; None: clients need no certificate
    client_ca: bytes | None
    #: seconds since 1970: when the certificate expires
    expires: float

    def __repr__(self) -> str:
        return f"Identity(expires={self.expires})"


def read(listen: ListenSettings, known: Identity | None = None) -> Identity:
    """What the files hold, checked; or `known` if they still hold that. Raises `StartError`, which names the setting
    and the file."""
    for _ in range(_MAX_TRIES):
        certificate, key, client_ca = contents = _contents(listen)
        if known is not None and contents == (known.certificate, known.key, known.client_ca):
            return known
        expires = _check(listen)
        # The files may have been replaced between reading and checking.
        if _contents(listen) == contents:
            return Identity(certificate, key, client_ca, expires)
    raise StartError(f"listen.tls_certificate: {listen.tls_certificate} changes while it is read")


def _contents(listen: ListenSettings) -> tuple[bytes, bytes, bytes | None]:
    return (
        files.read("listen.tls_certificate", listen.tls_certificate),
        files.read_secret("listen.tls_key", listen.tls_key),
        files.read("listen.tls_client_ca", listen.tls_client_ca) if listen.tls_client_ca else None,
    )


def _check(listen: ListenSettings) -> float:
    """Returns when the certificate expires, in seconds since 1970."""
    if listen.tls_client_ca:
        _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "listen.tls_client_ca", listen.tls_client_ca)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(listen.tls_certificate, listen.tls_key, password=_no_password)
    except ssl.SSLError as error:
        raise StartError(_why_not_loaded(listen, error)) from error
    except OSError as error:
        # It was there a moment ago. OpenSSL does not say which of the two is missing.
        which = f"listen.tls_certificate: {listen.tls_certificate} or its key {listen.tls_key}"
        raise StartError(f"{which} cannot be read: {error.strerror}") from error
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    # The certificate is its own authority here: clients decide which authorities they trust.
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    _load_authorities(client, "listen.tls_certificate", listen.tls_certificate)
    what = f"listen.tls_certificate: {listen.tls_certificate}"
    try:
        seen = _shake_hands(client, server)
    except ssl.SSLCertVerificationError as error:
        raise StartError(f"{what} is not valid for a server: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise StartError(f"{what} cannot be used: {error.reason}") from error
    starts, expires = (ssl.cert_time_to_seconds(str(seen[when])) for when in ("notBefore", "notAfter"))
    now = time.time()
    if expires <= now:
        raise StartError(f"{what} has expired, at {date(expires)}")
    if starts > now:
        raise StartError(f"{what} is not valid yet; it will be at {date(starts)}")
    return expires


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> "ssl._PeerCertRetDictType":
    """Returns the certificate as the client sees it."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True))
    done = [False, False]
    while not all(done):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done[number] = True
            except ssl.SSLWantReadError:
                continue
    return ends[0].getpeercert() or {}


def _load_authorities(context: ssl.SSLContext, setting: str, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise StartError(f"{setting}: {path} has no certificate in PEM form") from error
    except OSError as error:
        raise StartError(f"{setting}: {path} cannot be read: {error.strerror}") from error


def _why_not_loaded(listen: ListenSettings, error: ssl.SSLError) -> str:
    certificate, key = listen.tls_certificate, listen.tls_key
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"listen.tls_key: {key} is not the key of the certificate {certificate}"
    # OpenSSL does not say which of the two it could not read.
    if b"PRIVATE KEY-----" not in files.read_secret("listen.tls_key", key):
        return f"listen.tls_key: {key} has no private key in PEM form"
    if b"-----BEGIN CERTIFICATE-----" not in files.read("listen.tls_certificate", certificate):
        return f"listen.tls_certificate: {certificate} has no certificate in PEM form"
    return f"listen.tls_certificate: {certificate} with the key {key} cannot be used: {error.reason or error}"


def date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _no_password() -> str:
    raise StartError("listen.tls_key: the key is encrypted; use one without a password")
