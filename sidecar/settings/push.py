"""How the sidecar calls an app that is a server."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sidecar.settings.fields import Bytes, Seconds, setting


class PushFormat(StrEnum):
    """How records are written into a call."""

    CLOUDEVENTS = "cloudevents"
    CLOUDEVENTS_STRUCTURED = "cloudevents-structured"
    CLOUDEVENTS_BINARY = "cloudevents-binary"
    JSON = "json"
    RAW = "raw"

    @property
    def batches(self) -> bool:
        """Whether a call can carry more than one record."""
        return self in (PushFormat.CLOUDEVENTS, PushFormat.JSON)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    url: str = setting(
        "URL that the sidecar calls with batches, such as http://127.0.0.1:8080/orders or, on a unix socket, "
        "http+unix:///run/app/app.sock:/orders. Workers may connect as well. Empty: nothing is pushed. Requires "
        "`offramp-sidecar[push]`.",
        "",
    )
    fastcgi: str = setting(
        "Instead of `url`: the socket of php-fpm or another FastCGI server, as unix:/run/php/php-fpm.sock or "
        "host:port. It gets batches in JSON, and acks them by an answer as the helper for PHP writes it.",
        "",
    )
    script: str = setting("With `fastcgi`: path of the script, as the server sees it.", "")
    fastcgi_keep: bool = setting(
        "With `fastcgi`: keep connections between calls. Each occupies a worker, so only for a pool of which nobody "
        "else uses a part.",
        False,
    )
    grpc: str = setting(
        "Instead of `url`: where the app serves `offramp.v1.HandlerService` without TLS, as host:port or "
        "unix:/path/of/a.sock.",
        "",
    )
    format: PushFormat = setting(
        "`cloudevents`: a batch of CloudEvents; `json`: a batch with all that is known of each record; one record a "
        "call: `cloudevents-structured`, `cloudevents-binary` and `raw`, whose body is the value. With `fastcgi` it is "
        "always `json`.",
        PushFormat.CLOUDEVENTS,
    )
    concurrency: int = setting("Maximum number of calls at a time.", 16, at_least=1, at_most=10_000)
    timeout: Seconds = setting("How long the app may take to answer a call.", Seconds(30.0), at_least=0.01)
    settle_after: Seconds = setting(
        "How long a call that timed out may go on in the app. Until then its records are not delivered again, and it "
        "counts as a call.",
        Seconds(10.0),
        at_least=0.0,
    )
    reject_statuses: tuple[int, ...] = setting(
        "HTTP statuses that reject a record for good. A larger batch is split first.",
        (400, 413, 415, 422),
    )
    headers: Mapping[str, str] = setting("Headers of every call.", {})
    header_files: Mapping[str, str] = setting(
        "Headers whose values are secret: the file that holds the value of each. Other users must have no access to "
        "them. Reloaded when they change.",
        {},
    )
    signing_secret_file: str = setting(
        "File with the secret that signs every call, as standardwebhooks do: webhook-signature is the HMAC-SHA256 of "
        "webhook-id, webhook-timestamp and the body. Several lines are several secrets, so that one can replace "
        "another. Reloaded when it changes. Empty: calls are not signed.",
        "",
        secret=False,
    )
    tls_ca: str = setting(
        "PEM file with the authorities that sign the certificate of an https URL. Empty: those of the system.", ""
    )
    reply_topic: str = setting(
        "Topic on the same broker that gets the body of each 2xx answer. The batch is acked once that is published. "
        "Empty: answers are not published.",
        "",
    )
    content_type: str = setting("Media type of values whose records have no content-type header.", "application/json")
    event_type: str = setting("`type` of CloudEvents whose records name none (header ce_type).", "offramp.record")
    max_answer: Bytes = setting("Size of the largest answer that is read.", Bytes(1 << 20), at_least=1024)

    @property
    def enabled(self) -> bool:
        return bool(self.url or self.fastcgi or self.grpc)
