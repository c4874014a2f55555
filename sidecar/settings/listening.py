"""Where callers come in, who may, and what they may do."""

from dataclasses import dataclass
from enum import StrEnum

from sidecar.settings.kit import Address, Bytes, Mode, Seconds, setting


class Right(StrEnum):
    """What a caller may do with a subscription."""

    #: take batches and settle them
    CONSUME = "consume"
    #: publish to its broker
    PUBLISH = "publish"
    #: read ranges and commit them
    RANGES = "ranges"
    #: look at it and operate it
    ADMIN = "admin"


class Authenticate(StrEnum):
    """Which listeners ask for a token."""

    NETWORK = "network"
    TCP = "tcp"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenSettings:
    socket: str = setting(
        "The unix socket for apps. Its folder is made if missing. Empty: no socket.", "/run/offramp/offramp.sock"
    )
    socket_mode: Mode = setting("Permissions of the socket, octal.", 0o660, at_least=0, at_most=0o777)
    socket_group: str = setting(
        "The group that the socket belongs to: a name or a number. The sidecar's user must be in it. Empty: as the "
        "folder says.",
        "",
    )
    admin_socket: str = setting(
        "A second socket, for operators: mode 0600, every right, no token. For pods whose apps have no `admin` among "
        "`rights`; keep its folder out of theirs. Empty: none.",
        "",
    )
    tcp: Address = setting(
        "host:port for apps that cannot use the socket. An address that is not loopback needs `tls_certificate` and "
        "either `clients` or `tls_client_ca`. Empty: none.",
        "",
    )
    tls_certificate: str = setting(
        "A PEM file with the certificate to show on `tcp`, and those between it and its authority. Read again when it "
        "changes, as are the next two. Empty: no TLS.",
        "",
    )
    tls_key: str = setting("A PEM file with its private key, closed to other users.", "")
    tls_client_ca: str = setting(
        "A PEM file with the authorities whose certificates clients must show. Empty: clients need none.", ""
    )
    authenticate: Authenticate = setting(
        "Who must show a token of `clients`: those who call over the `network`, all who call over `tcp`, loopback "
        "included, or `all`, those on the socket too.",
        Authenticate.NETWORK,
    )
    rights: tuple[Right, ...] = setting(
        "What those may do, with every subscription, who need no token and show none.",
        tuple(Right),
    )
    certificate_rights: tuple[Right, ...] = setting(
        "Which of these `rights` those have who call over the network with a certificate alone, where there are no "
        "`clients`.",
        (Right.CONSUME, Right.PUBLISH, Right.RANGES),
    )
    max_request_bytes: Bytes = setting("Largest request taken from an app.", Bytes(4 << 20), at_least=64 << 10)
    max_sessions: int = setting("Most sessions at a time.", 1_000, at_least=1)
    max_connections: int = setting(
        "Most connections at a time to each of the socket and `tcp`; further ones are closed. A PHP process has up to "
        "three, others one or two.",
        4_000,
        at_least=1,
    )
    max_streams: int = setting(
        "Most calls at a time on one connection; further ones wait in the client.", 256, at_least=1, at_most=100_000
    )
    unread: Seconds = setting(
        "How long a client may leave unread what waits for it. Then its stream is ended, and its batches go to others.",
        Seconds(600.0),
        at_least=0.1,
    )
    silence: Seconds = setting(
        "After this long without a sign of life the connection of a client on another machine is closed, and its "
        "batches go to others. A client that blocks while it works gives no sign meanwhile.",
        Seconds(600.0),
        at_least=1.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """One who calls with a token. `*` in a list of subscriptions stands for every one."""

    name: str = ""
    token_file: str = setting(
        "A file with the client's token, closed to other users. Several lines are several tokens, for the time in "
        "which one replaces another. Read again when it changes.",
        secret=False,
        example="/etc/offramp/tokens/billing",
    )
    consume: tuple[str, ...] = setting("Subscriptions that it may take batches of, and settle.", ())
    publish: tuple[str, ...] = setting(
        "Subscriptions to whose brokers it may publish. Publishing to a broker by its name takes `*`.", ()
    )
    ranges: tuple[str, ...] = setting("Subscriptions that it may read ranges of, and commit.", ())
    admin: tuple[str, ...] = setting(
        "Subscriptions that it may look at and operate. The status of the whole sidecar takes `*`.", ()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    address: Address = setting(
        "host:port for the status page, /healthz, /startupz, /readyz, /metrics and /version. Empty: none.",
        "127.0.0.1:4771",
    )
    page: bool = setting(
        "Show the status page at /, to whoever can reach the address. It is read-only, and has no payloads.", True
    )
    gate_readiness: bool = setting(
        "Let /readyz fail while a broker is out of reach or a subscription cannot go on. For pods that do nothing but "
        "consume; a pod that also serves requests would go out of service with its broker. `--gate-readiness` sets it.",
        False,
    )
