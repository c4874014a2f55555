"""A real Apache Pulsar, standalone: `pulsar = PulsarServer.create(folder); pulsar.start()`.

It listens in the clear and with TLS, for clients and for the admin API. Who comes without a token may do everything;
a role that comes with a token (`token`) may do what a test grants it.
"""

import base64
import hashlib
import hmac
import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers import certificates
from tests.servers.maven import Jars
from tests.servers.process import ServerProcess, free_ports
from tests.servers.server import Server
from tests.servers.tools import tool

VERSION = "4.2.4"
JARS = Jars(
    "pulsar-server",
    VERSION,
    [f"org.apache.pulsar:pulsar-broker:{VERSION}"],
    # Without it the versions of what Pulsar needs are mixed.
    boms=[f"org.apache.pulsar:pulsar:{VERSION}"],
    megabytes=245,
)

#: small, and quick to start rather than quick in the long run
SMALL = (
    *("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-XX:-UsePerfData",
)
#: for figures: the compiler may do its best
FAST = ("-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:+UseSerialGC", "-XX:-UsePerfData")

_OPENED = (
    *("java.base/java.io", "java.base/java.util.zip", "java.base/java.nio", "java.base/jdk.internal.misc"),
    *("java.base/sun.net", "java.base/jdk.internal.platform", "java.management/sun.management"),
)
_JVM = (
    *(word for package in _OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
)

#: who comes without a token
_ANYBODY = "anybody"

#: what one small server needs, and what makes it quick
_PROPERTIES = {
    "clusterName": "standalone",
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
    "loadBalancerEnabled": "false",
    "systemTopicEnabled": "false",
    "topicLevelPoliciesEnabled": "false",
    "numHttpServerThreads": "8",
    "numIOThreads": "2",
    "numOrderedExecutorThreads": "2",
    "defaultNumberOfNamespaceBundles": "1",
    # What every group has acked stays, so that tests can look at it.
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    # A standby takes over at once.
    "activeConsumerFailoverDelayTimeMillis": "0",
    "authenticationEnabled": "true",
    "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    "anonymousUserRole": _ANYBODY,
    "authorizationEnabled": "true",
    "superUserRoles": _ANYBODY,
}


@dataclass(frozen=True)
class Ports:
    broker: int
    broker_tls: int
    web: int
    web_tls: int


class PulsarServer(Server):
    name = "Pulsar"

    def __init__(
        self,
        folder: Path,
        ports: Ports,
        *,
        jvm: Sequence[str] = SMALL,
        owner: int | None = None,
        process: ServerProcess | None = None,
    ) -> None:
        super().__init__(folder, jvm=jvm, owner=owner, process=process)
        self.ports = ports

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        properties: Mapping[str, str] | None = None,
        jvm: tuple[str, ...] = SMALL,
        owner: int | None = None,
        proxied: str = "",
    ) -> "PulsarServer":
        """Not started yet. `properties` come on top of those that make it small and quick; the server ends with the
        process `owner`, which is this one unless told otherwise. Clients are told to come by the host:port `proxied`,
        if there is one. Raises `Missing`."""
        server = cls(folder, Ports(*free_ports(4)), jvm=jvm, owner=owner)
        folder.mkdir(parents=True, exist_ok=True)
        server._write_configuration({**(_proxied(proxied) if proxied else {}), **(properties or {})})
        return server

    # Addresses

    @property
    def url(self) -> str:
        """For clients that need nothing."""
        return f"pulsar://127.0.0.1:{self.ports.broker}"

    @property
    def url_tls(self) -> str:
        return f"pulsar+ssl://127.0.0.1:{self.ports.broker_tls}"

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.web}"

    @property
    def admin_url_tls(self) -> str:
        return f"https://127.0.0.1:{self.ports.web_tls}"

    @property
    def ca(self) -> Path:
        """What clients of the TLS ports trust."""
        return self.folder / "certificates" / "ca.pem"

    def token(self, role: str) -> str:
        """A token for a role."""
        return _token(role, (self.folder / "secret").read_bytes())

    # The admin API, as somebody who may do everything

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """What is answered, from JSON. Raises `urllib.error.HTTPError`."""
        request = urllib.request.Request(
            f"{self.admin_url}/admin/v2/{path}",
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30.0) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def make_topic(self, topic: str, lanes: int = 1) -> None:
        """A partitioned one in public/default."""
        self.admin("PUT", f"persistent/public/default/{topic}/partitions", lanes)

    def grant(self, role: str, *actions: str, namespace: str = "public/default") -> None:
        """Lets a role `produce` or `consume` in a namespace."""
        self.admin("POST", f"namespaces/{namespace}/permissions/{role}", list(actions))

    def stats(self, topic: str) -> Any:
        """Of a partitioned topic, as the broker tells them."""
        return self.admin("GET", f"persistent/public/default/{topic}/partitioned-stats?getPreciseBacklog=true")

    def backlog(self, topic: str, subscription: str) -> int:
        """Messages of a partitioned topic that a subscription has not acknowledged."""
        found = self.stats(topic)["subscriptions"].get(subscription)
        return int(found["msgBacklog"]) if found else -1

    def describe(self) -> str:
        with_tls = f"with TLS at {self.url_tls} and {self.admin_url_tls}"
        return f"Pulsar {VERSION} at {self.url}, admin API at {self.admin_url}; {with_tls}"

    # Life

    def _command(self) -> list[str]:
        return [
            *(tool("java"), *self._jvm, *_JVM, "-cp", f"{self.folder}{os.pathsep}{JARS.fetch()}/*"),
            *("org.apache.pulsar.PulsarStandaloneStarter", "--config", str(self.folder / "standalone.conf")),
            *("-nfw", "-nss", "--bookkeeper-dir", "bookkeeper", "--metadata-dir", "metadata"),
        ]

    def _answers(self) -> bool:
        try:
            # The ports open seconds before the namespace is there.
            self.admin("GET", "namespaces/public/default")
            return bool(self.admin("GET", "brokers/ready") is not None)
        except json.JSONDecodeError:
            return True
        except (OSError, http.client.HTTPException):
            return False

    # So that other processes of a test run can use it

    def to_json(self) -> str:
        return json.dumps({"folder": str(self.folder), "ports": vars(self.ports), "pid": self.pid})

    @classmethod
    def from_json(cls, text: str) -> "PulsarServer":
        told: dict[str, Any] = json.loads(text)
        return cls(Path(told["folder"]), Ports(**told["ports"]), process=ServerProcess(told["pid"]))

    # Making it

    def _write_configuration(self, properties: Mapping[str, str]) -> None:
        made = certificates.make(self.folder / "certificates")
        secret = self.folder / "secret"
        secret.write_bytes(os.urandom(32))
        lines = {
            **_PROPERTIES,
            "brokerServicePort": self.ports.broker,
            "brokerServicePortTls": self.ports.broker_tls,
            "webServicePort": self.ports.web,
            "webServicePortTls": self.ports.web_tls,
            "tlsCertificateFilePath": made.certificate,
            "tlsKeyFilePath": made.key,
            "tlsTrustCertsFilePath": made.ca,
            "tokenSecretKey": f"file://{secret}",
            **properties,
        }
        (self.folder / "standalone.conf").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self._write_log_settings()


def _proxied(by: str) -> dict[str, str]:
    return {
        # Two ways to say where it is are refused; and without the first, its storage wants to be let.
        "advertisedAddress": "",
        "allowLoopback": "true",
        "advertisedListeners": f"proxied:pulsar://{by}",
        "internalListenerName": "proxied",
    }


def _token(role: str, secret: bytes) -> str:
    """A JSON web token, signed with HS256."""
    parts = [_encoded(json.dumps(part).encode()) for part in ({"alg": "HS256"}, {"sub": role})]
    signature = hmac.new(secret, ".".join(parts).encode(), hashlib.sha256).digest()
    return ".".join([*parts, _encoded(signature)])


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
