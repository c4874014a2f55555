"""The current problems of a subscription, for operators."""

from collections.abc import Iterator

from sidecar.observability.logs import Log

log = Log("subscription")


class Troubles:
    """One sentence for each kind of trouble while it lasts. Changes are logged."""

    def __init__(self, subscription: str) -> None:
        self._subscription = subscription
        self._current: dict[str, str] = {}

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Kinds and sentences, oldest first."""
        return iter(self._current.items())

    def get(self, kind: str) -> str:
        """The sentence of this kind; empty if there is none."""
        return self._current.get(kind, "")

    def set(self, kind: str, text: str) -> None:
        """Something is wrong; an empty text clears it."""
        before = self.get(kind)
        if not text:
            self.clear(kind)
        elif text != before:
            self._current[kind] = text
            log.warning(text, subscription=self._subscription)

    def clear(self, kind: str) -> None:
        """Nothing of this kind is wrong any more. Without effect if nothing was."""
        before = self._current.pop(kind, "")
        if before:
            log.info(f"resolved: {before}", subscription=self._subscription)
