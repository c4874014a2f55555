"""What can be configured for a broker of type `redis`, and checks of it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sidecar.brokers.base import BrokerOptions, Traits
from sidecar.brokers.queue.checks import problems_with
from sidecar.model.errors import ConfigError
from sidecar.settings import Bytes, Seconds, setting

if TYPE_CHECKING:
    from sidecar.settings import SubscriptionSettings

_URL = re.compile(r"rediss?://(\[[0-9a-fA-F:.]+\]|[^/?#@:\[\]]+)(:\d{1,5})?(/\d*)?|unix://(/[^?#]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions(BrokerOptions):
    """Streams of Redis 7.0 or newer, or of Valkey. See docs/brokers/redis.md."""

    url: str = setting(
        "The server: redis://host:6379, with TLS rediss://host:6380; a database other than 0 as redis://host:6379/2. "
        "Also unix:///path/to/socket.",
        example="redis://redis:6379",
    )
    username: str = setting("The ACL user. Empty: the user `default`.", "")
    password: str = setting("The password. Better set by an environment variable, or by `password_file`.", "")
    password_file: str = setting("A file that holds the password. Read again at each connect.", "")
    tls_ca: str = setting("A file with the certificates to trust. Empty: those of the system.", "")
    tls_certificate: str = setting("A file with the client certificate, where the server asks for one.", "")
    tls_key: str = setting("A file with the private key of `tls_certificate`.", "")
    tls_check_hostname: bool = setting("Require that the server's certificate is for the host in `url`.", True)
    consumer: str = setting(
        "The name of this sidecar in its groups: one that no other sidecar has, and that it has again after a restart, "
        "so that it goes on with what was pending. Empty: the host name, which is the name of the pod in Kubernetes.",
        "",
    )
    claim_idle: Seconds = setting(
        "After how long entries of a sidecar that is silent go to another one. What a sidecar holds is renewed three "
        "times as often, so that a record may be worked on for as long as it takes.",
        Seconds(60.0),
        at_least=1.0,
        at_most=86_400.0,
    )
    value_field: str = setting("The field of an entry that is the value of a record.", "value")
    key_field: str = setting("The field that is its key. All other fields are headers.", "key")
    create_streams: bool = setting("Create streams and groups' own streams that are missing.", True)
    delete_settled: bool = setting(
        "Delete entries from the streams that are consumed once all groups of the stream have settled them. Those of "
        "a retry topic are always deleted.",
        False,
    )
    max_message: Bytes = setting(
        "The largest message that is published, with key and headers. Redis itself closes the connection of who sends "
        "more than 512 MiB.",
        Bytes(16 << 20),
        at_least=1024,
        at_most=512 << 20,
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
            positions_are_stable=False,
            browses=True,
        )

    def problems_with(self, subscription: "SubscriptionSettings") -> Iterator[tuple[str, str]]:
        yield from problems_with(subscription, self.traits)

    def read_password(self) -> str:
        """Empty if there is none. Reads `password_file`; raises `OSError`."""
        return Path(self.password_file).read_text().strip() if self.password_file else self.password

    @property
    def address(self) -> str:
        """For people: where the server is."""
        found = urlsplit(self.url)
        return found.path if found.scheme == "unix" else f"{found.hostname}:{found.port or 6379}"

    def _problems(self) -> Iterator[str]:
        """What is wrong with the options together, a sentence each."""
        if not _URL.fullmatch(self.url):
            # It may hold a password.
            yield (
                "url: is not like redis://host:6379, rediss://host:6380/2 or unix:///path/to/socket; user and password "
                "have keys of their own"
            )
        if self.password and self.password_file:
            yield "password_file: there is a password, too; one of them is enough"
        if self.username and not (self.password or self.password_file):
            yield "username: requires a password"
        if bool(self.tls_certificate) is not bool(self.tls_key):
            yield "tls_key: a certificate and its key go together"
        if self.tls_ca and not self.url.startswith("rediss:"):
            yield "tls_ca: the url is not rediss://, so there is no certificate to check"
        for key in ("value_field", "key_field"):
            if not getattr(self, key):
                yield f"{key}: is empty; it takes the name of a field"
        if self.value_field == self.key_field:
            yield f'key_field: "{self.key_field}" is the value_field, too'
