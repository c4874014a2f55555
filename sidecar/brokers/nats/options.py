"""What can be configured for a broker of type `nats`, and checks of it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sidecar.brokers.base import BrokerOptions, Traits
from sidecar.brokers.nats import naming
from sidecar.brokers.queue import checks
from sidecar.model.errors import ConfigError
from sidecar.settings import Seconds, setting

if TYPE_CHECKING:
    from sidecar.settings import SubscriptionSettings

_URL = re.compile(r"(nats|tls)://(\[[0-9a-fA-F:.]+\]|[^/?#@:\[\],\s]+)(:\d{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsOptions(BrokerOptions):
    """JetStream of NATS 2.10 or newer. See docs/brokers/nats.md."""

    url: str = setting(
        "The server: nats://host:4222, or with TLS tls://host:4222. Several of a cluster are separated by commas.",
        example="nats://nats:4222",
    )
    username: str = setting("The user.", "")
    password: str = setting("The password. Better set by an environment variable, or by `password_file`.", "")
    password_file: str = setting("A file that holds the password. Read again at each connect.", "")
    token: str = setting("A token instead of user and password.", "")
    token_file: str = setting("A file that holds the token. Read again at each connect.", "")
    credentials_file: str = setting("A file with JWT and seed of a user (.creds). Read again at each connect.", "")
    nkey_file: str = setting("A file with the seed of an nkey. Read again at each connect.", "")
    tls_ca: str = setting("A file with the certificates to trust. Empty: those of the system.", "")
    tls_certificate: str = setting("A file with the client certificate, where the server asks for one.", "")
    tls_key: str = setting("A file with the private key of `tls_certificate`.", "")
    tls_check_hostname: bool = setting("Require that the server's certificate is for the host in `url`.", True)
    inbox_prefix: str = setting(
        "What the subjects begin with on which answers arrive. The user must be allowed to subscribe to it.",
        "_INBOX",
    )
    create_streams: bool = setting(
        "Create streams that are missing: topics that are consumed, and a group's own streams for retries and dead "
        "letters. Otherwise a missing stream is an error that says how to add it.",
        False,
    )
    replicas: int = setting("Replicas of the streams that are created.", 1, at_least=1, at_most=5)
    ack_wait: Seconds = setting(
        "The ack wait of the consumers that are created: after how long messages of a sidecar that is silent go to "
        "another one. What a sidecar holds is renewed three times as often, so that a record may be worked on for as "
        "long as it takes.",
        Seconds(60.0),
        at_least=1.0,
        at_most=86_400.0,
    )
    start_at: str = setting(
        "Where groups start that have no consumer yet, instead of `start`: a sequence of the stream (`4711`) or a time "
        "(`2026-01-31T12:00:00Z`). Empty: as `start` says.",
        "",
    )
    timeout: Seconds = setting("How long to wait for the server to answer.", Seconds(10.0), at_least=1.0, at_most=300.0)

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ConfigError(problem)

    @property
    def traits(self) -> Traits:
        return Traits(
            keeps_acks_beyond=True,
            keeps_reach=False,
            rebalances=False,
            lanes_are_exclusive=False,
            seeks=False,
            reads_ranges=False,
            creates_topics=self.create_streams,
            acks_are_final=True,
            positions_count_records=False,
            # A server that was killed has forgotten deliveries, and counts them as the first once more.
            tells_first_deliveries=False,
            positions_are_stable=False,
            deduplicates=True,
            acks_survive_broker_kill=False,
            browses=True,
        )

    def problems_with(self, subscription: "SubscriptionSettings") -> Iterator[tuple[str, str]]:
        yield from checks.problems_with(subscription, self.traits)
        for topic in subscription.topics:
            if not naming.is_allowed(topic):
                yield "topics", f'"{topic}" cannot be the name of a stream: no *, >, /, \\, space or empty part'
        if not naming.is_allowed(subscription.group_name):
            yield "group", f'"{subscription.group_name}" cannot name a consumer: no *, >, /, \\, space or empty part'

    @property
    def servers(self) -> list[str]:
        return [server.strip() for server in self.url.split(",")]

    @property
    def uses_tls(self) -> bool:
        return self.url.startswith("tls:")

    @property
    def address(self) -> str:
        """For people: where the servers are."""
        found = [urlsplit(server) for server in self.servers]
        return ",".join(f"{server.hostname}:{server.port or 4222}" for server in found)

    @property
    def start_sequence(self) -> int:
        """Where `start_at` says to start; 0: it names none."""
        return int(self.start_at) if self.start_at.isdecimal() else 0

    def read_password(self) -> str:
        """Empty if there is none. Reads `password_file`; raises `OSError`."""
        return Path(self.password_file).read_text().strip() if self.password_file else self.password

    def read_token(self) -> str:
        """Empty if there is none. Reads `token_file`; raises `OSError`."""
        return Path(self.token_file).read_text().strip() if self.token_file else self.token

    def _problems(self) -> Iterator[str]:
        """What is wrong with the options together, a sentence each."""
        if not all(_URL.fullmatch(server) for server in self.servers):
            # It may hold a password.
            yield "url: is not like nats://host:4222 or tls://one:4222,tls://other:4222; users have keys of their own"
        elif len({urlsplit(server).scheme for server in self.servers}) > 1:
            yield "url: some servers are with TLS and some are not: begin all with tls://, or all with nats://"
        if self.password and self.password_file:
            yield "password_file: there is a password, too; one of them is enough"
        if self.token and self.token_file:
            yield "token_file: there is a token, too; one of them is enough"
        if bool(self.username) is not bool(self.password or self.password_file):
            yield "username: a user and a password go together"
        ways = (self.username, self.token or self.token_file, self.credentials_file, self.nkey_file)
        if sum(map(bool, ways)) > 1:
            yield "username: take one of a user, a token, a credentials_file and an nkey_file"
        if bool(self.tls_certificate) is not bool(self.tls_key):
            yield "tls_key: a certificate and its key go together"
        if (self.tls_ca or self.tls_certificate) and not self.uses_tls:
            yield "url: does not begin with tls://, but there are certificates"
        if not naming.is_allowed(self.inbox_prefix):
            yield f'inbox_prefix: "{self.inbox_prefix}" is no subject; take one like _INBOX_offramp'
        if self.start_at and not self.start_sequence and _time_of(self.start_at) is None:
            yield f'start_at: "{self.start_at}" is neither a sequence like 4711 nor a time like 2026-01-31T12:00:00Z'


def _time_of(text: str) -> datetime | None:
    """A time with its offset; None for anything else."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
