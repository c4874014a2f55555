"""Where callers connect, who may, and with which rights."""

from dataclasses import dataclass
from enum import StrEnum

from sidecar.settings.fields import Address, Bytes, Mode, Seconds, setting


class Right(StrEnum):
    """What a caller may do with a subscription."""

    #: take batches and settle them
    CONSUME = "consume"
    #: publish to its broker
    PUBLISH = "publish"
    #: read ranges and commit them
    RANGES = "ranges"
    #: see its status and operate it
    ADMIN = "admin"


class Authenticate(StrEnum):
    """Which listeners require a token."""

    NETWORK = "network"
    TCP = "tcp"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenSettings:
    socket: str = setting(
        "Path of the unix socket for apps. Its folder is created if it is missing. Empty: no socket.",
        "/run/offramp/offramp.sock",
    )
    socket_mode: Mode = setting("Permissions of the socket.", 0o660, at_least=0, at_most=0o777)
    socket_group: str = setting(
        "Group of the socket, a name or a number. The user of the sidecar must be a member. Empty: the group that the "
        "folder gives it.",
        "",
    )
    admin_socket: str = setting(
        "Path of a second socket, for operators: mode 0600, all rights, no token. Useful where `rights` lacks `admin`; "
        "keep it in a folder that apps cannot reach. Empty: no such socket.",
        "",
    )
    tcp: Address = setting(
        "host:port for apps that cannot use the socket. An address that is not loopback requires `tls_certificate` and "
        "either `clients` or `tls_client_ca`. Empty: no TCP.",
        "",
    )
    tls_certificate: str = setting(
        "PEM file with the server certificate of `tcp`, followed by any intermediate certificates. This file, "
        "`tls_key` and `tls_client_ca` are reloaded when they change. Empty: no TLS.",
        "",
    )
    tls_key: str = setting("PEM file with the private key. Other users must have no access to it.", "")
    tls_client_ca: str = setting(
        "PEM file with the authorities that sign client certificates. Empty: clients need no certificate.", ""
    )
    authenticate: Authenticate = setting(
        "Callers that must present a token of `clients`: `network`: those on other machines; `tcp`: all on `tcp`, "
        "loopback included; `all`: those on the socket, too.",
        Authenticate.NETWORK,
    )
    rights: tuple[Right, ...] = setting(
        "Rights of callers that present no token, where none is required. They hold for every subscription.",
        tuple(Right),
    )
    publish_topics: tuple[str, ...] = setting(
        "Topics to which callers may publish that present no token. `*`: all.",
        ("*",),
    )
    certificate_rights: tuple[Right, ...] = setting(
        "Rights of callers identified only by a client certificate, as far as `rights` has them, too. Applies on the "
        "network where there are no `clients`.",
        (Right.CONSUME, Right.PUBLISH, Right.RANGES),
    )
    max_request_bytes: Bytes = setting(
        "Size of the largest request that is accepted.", Bytes(4 << 20), at_least=64 << 10
    )
    max_sessions: int = setting("Maximum number of sessions at a time.", 1_000, at_least=1)
    max_connections: int = setting(
        "Maximum number of connections at a time, for each listener; further ones are closed. A PHP process has up to "
        "three, other apps one or two.",
        4_000,
        at_least=1,
    )
    max_streams: int = setting(
        "Maximum number of calls at a time on one connection; further ones wait in the client.",
        256,
        at_least=1,
        at_most=100_000,
    )
    unread: Seconds = setting(
        "How long a client may leave data unread. After that its stream is ended, and its batches go to others.",
        Seconds(600.0),
        at_least=0.1,
    )
    silence: Seconds = setting(
        "How long a client on another machine may stay silent. After that its connection is closed, and its batches go "
        "to others. A client that blocks while it works is silent for that time.",
        Seconds(600.0),
        at_least=1.0,
    )
    resume_max: Seconds = setting(
        "Upper bound for the time in which a client on `tcp` may resume its session after its connection was lost. "
        "Until then its batches wait for it, even if its process is dead. Clients must ask for it; on the socket there "
        "is no such time. 0: none.",
        Seconds(60.0),
        at_least=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """A client that calls with a token. `*` in a list of subscriptions stands for all of them."""

    name: str = ""
    token_file: str = setting(
        "File with the client's token. Other users must have no access to it. Several lines are several tokens, all of "
        "them valid, so that one can replace another. Reloaded when it changes.",
        secret=False,
        example="/etc/offramp/tokens/billing",
    )
    consume: tuple[str, ...] = setting("Subscriptions whose batches the client may take and settle. `*`: all.", ())
    publish: tuple[str, ...] = setting(
        "Subscriptions to whose brokers the client may publish. `*`: all, and brokers by name.", ()
    )
    publish_topics: tuple[str, ...] = setting(
        "Topics to which the client may publish, of those that `publish` allows. `*`: all.", ("*",)
    )
    ranges: tuple[str, ...] = setting("Subscriptions that the client may read by ranges, and commit. `*`: all.", ())
    admin: tuple[str, ...] = setting(
        "Subscriptions that the client may inspect and operate. `*`: all, and the whole sidecar.", ()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    address: Address = setting(
        "Address of the status page, /healthz, /startupz, /readyz, /metrics and /version. Empty: no HTTP.",
        "127.0.0.1:4771",
    )
    page: bool = setting(
        "Serve the status page at /, to everybody who can reach the address. It is read-only and shows no payloads.",
        True,
    )
    gate_readiness: bool = setting(
        "Let /readyz fail while a broker is unreachable or a subscription cannot consume. Only for pods that do "
        "nothing but consume: a pod that also serves requests would lose its traffic. `--gate-readiness` turns it on.",
        False,
    )
