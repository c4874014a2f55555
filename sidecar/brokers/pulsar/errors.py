"""The errors of pulsar-client as ours, one sentence each, and why a broker cannot be reached."""

import socket
import ssl
import struct
import urllib.parse

import _pulsar

from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.model.errors import BrokerError, NotFound, OutOfRoom, Refused, TooLarge, Unavailable
from sidecar.model.wire import varint

#: seconds that a connection attempt of our own may take, and each read from it
_CONNECT_TIMEOUT = 2.0
#: commands of Pulsar's protocol
_CONNECT, _ERROR = 2, 14

_Result = _pulsar.Result

_NOT_FOUND = {_Result.TopicNotFound, _Result.SubscriptionNotFound}
_REFUSED = {
    _Result.AuthenticationError: "the broker rejects these credentials",
    _Result.AuthorizationError: "this role has no right to do so",
    _Result.ErrorGettingAuthenticationData: "the credentials cannot be read",
    _Result.InvalidTopicName: "the name of the topic is invalid",
    _Result.InvalidUrl: "the url is invalid",
    _Result.InvalidConfiguration: "the options contradict each other",
    _Result.IncompatibleSchema: "the topic has a schema that takes no plain bytes",
    _Result.UnsupportedVersionError: "the broker is too old for this",
    _Result.NotAllowedError: "the broker does not allow it",
    _Result.OperationNotSupported: "the broker does not support it",
    _Result.TopicTerminated: "the topic was terminated: it takes no more messages",
    _Result.ProducerFenced: "another producer has the topic for itself",
}
_BUSY = {_Result.ConsumerBusy, _Result.ConsumerAssignError}
_FULL = {_Result.ProducerBlockedQuotaExceededError, _Result.ProducerBlockedQuotaExceededException}
_VAGUE = {_Result.ConnectError, _Result.Timeout, _Result.LookupError, _Result.UnknownError, _Result.NotConnected}
_UNAVAILABLE = {
    _Result.ConnectError: "it cannot be reached",
    _Result.Timeout: "it does not answer",
    _Result.NotConnected: "the connection is lost",
    _Result.LookupError: "it cannot say which broker has the topic",
    _Result.BrokerMetadataError: "its metadata store has a problem",
    _Result.BrokerPersistenceError: "its storage has a problem",
    _Result.ServiceUnitNotReady: "the topic is moving to another broker",
    _Result.TooManyLookupRequestException: "it has too many requests",
    _Result.AlreadyClosed: "the connection was closed",
    _Result.ProducerQueueIsFull: "too much is being published at once",
    _Result.MemoryBufferIsFull: "too much is being published at once",
}


def translate(error: BaseException, doing: str) -> BrokerError:
    """An exception of the library as ours. `doing` is what was tried, such as "consume topic X"."""
    if isinstance(error, BrokerError):
        return error
    if isinstance(error, _pulsar.PulsarException):
        return of_result(_result(error), doing)
    return Unavailable(f"Pulsar: cannot {doing}: {error}")


def is_vague(error: BaseException) -> bool:
    """Whether the library only says that it cannot reach the broker. See `connect_diagnosis`."""
    return isinstance(error, _pulsar.PulsarException) and _result(error) in _VAGUE


def of_result(result: _pulsar.Result, doing: str) -> BrokerError:
    if result in _NOT_FOUND:
        return NotFound(
            f"Pulsar: cannot {doing}: there is no such topic or namespace, and the broker does not create it"
        )
    if result in _BUSY:
        return Refused(
            f"Pulsar: cannot {doing}: the subscription has consumers already that it cannot share with. Either another "
            "sidecar has it exclusively, or they use another subscription_type"
        )
    if result in _FULL:
        return OutOfRoom(f"Pulsar: cannot {doing}: the backlog quota of the topic is used up")
    if result == _Result.MessageTooBig:
        return TooLarge(f"Pulsar: cannot {doing}: the broker takes no message of this size")
    if result in _REFUSED:
        return Refused(f"Pulsar: cannot {doing}: {_REFUSED[result]}")
    return Unavailable(f"Pulsar: cannot {doing}: {_UNAVAILABLE.get(result, f'it says {result.name}')}")


def connect_diagnosis(options: PulsarOptions, doing: str) -> BrokerError | None:
    """Why the first host of the url cannot be reached: found by connecting to it, since the library does not say.
    None if that works. Blocks for seconds."""
    found = urllib.parse.urlsplit(options.url.split(",")[0])
    tls = found.scheme == "pulsar+ssl"
    host, port = found.hostname or "localhost", found.port or (6651 if tls else 6650)
    try:
        with socket.create_connection((host, port), _CONNECT_TIMEOUT) as connection:
            if not tls:
                refused = _refuses_credentials(connection, options)
            else:
                with options.tls_context().wrap_socket(connection, server_hostname=host) as secured:
                    refused = _refuses_credentials(secured, options)
        if not refused:
            return None
        return Refused(f"Pulsar: cannot {doing}: the broker rejects these credentials")
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


def _result(error: BaseException) -> _pulsar.Result:
    found = next((one for one in _Result.__members__.values() if type(error).__name__ == one.name), None)
    return found or _Result.UnknownError


def _refuses_credentials(connection: socket.socket, options: PulsarOptions) -> bool:
    """Sends the CONNECT command as the library does, and checks whether the first command that comes is an error."""
    token = options.read_token().encode()
    connect = b"\x0a\x07offramp" + b"\x20\x13"
    if token:
        connect += b"\x1a" + varint(len(token)) + token + b"\x2a\x05token"
    command = bytes((0x08, _CONNECT, 0x12)) + varint(len(connect)) + connect
    connection.sendall(struct.pack(">II", len(command) + 4, len(command)) + command)
    answer = b""
    while len(answer) < 10 and (more := connection.recv(4096)):
        answer += more
    # Two sizes, then the command, which begins with its type.
    return len(answer) >= 10 and answer[8] == 0x08 and answer[9] == _ERROR
