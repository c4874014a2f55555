"""The headers of the settings, with their secrets and the signature of a call."""

import time
from collections.abc import Callable

from sidecar.model.errors import StartError
from sidecar.push import signature
from sidecar.push.formats import Payload
from sidecar.push.header_text import Headers
from sidecar.push.secret_file import SecretFile
from sidecar.settings import PushSettings


class OwnHeaders:
    def __init__(self, where: str, settings: PushSettings) -> None:
        """`where` is the key of the settings. Raises `StartError` if a file cannot be used."""
        self._plain = [(name.lower(), value) for name, value in settings.headers.items()]
        self._secret = {
            name.lower(): SecretFile(setting, path, _line_parser(setting))
            for name, path in settings.header_files.items()
            for setting in [f"{where}.header_files.{name}"]
        }
        self._keys: SecretFile[tuple[bytes, ...]] | None = None
        if settings.signing_secret_file:
            setting = f"{where}.signing_secret_file"
            self._keys = SecretFile(
                setting, settings.signing_secret_file, lambda content: signature.parse_keys(setting, content)
            )

    def of(self, payload: Payload, traceparent: str, now_ms: int) -> Headers:
        now = time.monotonic()
        headers = [*self._plain, *((name, secret.value(now)) for name, secret in self._secret.items())]
        if traceparent:
            headers.append(("traceparent", traceparent))
        if self._keys is not None:
            headers += signature.sign(self._keys.value(now), payload.id, payload.body, now_ms)
        return headers


def _line_parser(setting: str) -> Callable[[bytes], str]:
    def parse(content: bytes) -> str:
        text = content.strip().decode("latin-1")
        if not text.isprintable():
            raise StartError(f"{setting}: the file has more than one line, or a control character")
        return text

    return parse
