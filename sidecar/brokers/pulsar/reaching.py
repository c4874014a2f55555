"""Why a broker cannot be reached. The library only says that it cannot."""

import socket
import ssl
import struct
import urllib.parse
from pathlib import Path

from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.model.errors import BrokerError, Refused, Unavailable
from sidecar.model.wire import varint

#: seconds
_PATIENCE = 2.0
#: commands of Pulsar's protocol
_CONNECT, _ERROR = 2, 14


def why_not(options: PulsarOptions, doing: str) -> BrokerError | None:
    """What a connection of our own to the first host of the url meets; None if that works. Blocks for seconds."""
    found = urllib.parse.urlsplit(options.url.split(",")[0])
    tls = found.scheme == "pulsar+ssl"
    host, port = found.hostname or "localhost", found.port or (6651 if tls else 6650)
    try:
        with socket.create_connection((host, port), _PATIENCE) as connection:
            if not tls:
                refused = _is_refused(connection, options)
            else:
                with _context(options).wrap_socket(connection, server_hostname=host) as secured:
                    refused = _is_refused(secured, options)
        if not refused:
            return None
        return Refused(f"Pulsar: cannot {doing}: the broker does not take these credentials")
    except ssl.SSLCertVerificationError as error:
        reason = f"the certificate of {host}:{port} is not trusted: {error.verify_message}"
    except ssl.SSLError as error:
        reason = f"TLS with {host}:{port} fails: {error.reason or error}"
    except socket.gaierror:
        reason = f"the host {host} is not known"
    except ConnectionRefusedError:
        reason = f"nobody listens at {host}:{port}"
    except (OSError, ValueError) as error:
        reason = f"{host}:{port} does not answer: {error}"
    return Unavailable(f"Pulsar: cannot {doing}: {reason}")


def token_of(options: PulsarOptions) -> str:
    """Empty if there is none. Raises `OSError`."""
    return Path(options.token_file).read_text().strip() if options.token_file else options.token


def _is_refused(connection: socket.socket, options: PulsarOptions) -> bool:
    """Introduces itself as the library does, and looks at the first word of the answer."""
    token = token_of(options).encode()
    said = b"\x0a\x07offramp" + b"\x20\x13"
    if token:
        said += b"\x1a" + varint(len(token)) + token + b"\x2a\x05token"
    command = bytes((0x08, _CONNECT, 0x12)) + varint(len(said)) + said
    connection.sendall(struct.pack(">II", len(command) + 4, len(command)) + command)
    answer = b""
    while len(answer) < 10 and (more := connection.recv(4096)):
        answer += more
    # Sizes, then the command, which begins with its type.
    return len(answer) >= 10 and answer[8] == 0x08 and answer[9] == _ERROR


def _context(options: PulsarOptions) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.tls_ca or None)
    context.check_hostname = options.tls_check_hostname
    if options.tls_certificate:
        context.load_cert_chain(options.tls_certificate, options.tls_key)
    return context
