"""How names and values appear in messages: on one line, not too long, and never a secret."""

import difflib
import re
from collections.abc import Iterable

_SECRET = re.compile(
    r"passw(or)?d|passphrase|secret|token|credential|api_?key|private_?key|access_?key|key_?pem|jaas"
    # librdkafka takes a whole login in this one: user, password, keys.
    r"|oauthbearer_config",
    re.IGNORECASE,
)
_USERINFO = re.compile(r"(?<=://)[^/@\s]*@")

HIDDEN = "(hidden)"


def looks_secret(name: str) -> bool:
    """Whether the name of a key or variable suggests a secret, as `sasl.password` or `API_TOKEN` do."""
    return _SECRET.search(name.replace("-", "_").replace(".", "_")) is not None


def one_line(text: str, most: int = 60) -> str:
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[: 2 * most])
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def without_userinfo(text: str) -> str:
    """A URL without the user and password in it."""
    return _USERINFO.sub("", text)


def quoted(text: str) -> str:
    """The text in quotes, cut and on one line, without the user and password of a URL."""
    return f'"{one_line(without_userinfo(text))}"'


def join_words(words: tuple[str, ...], last: str = "or") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`Did you mean "x"?` for the most similar known word, or an empty text."""
    lowered = {_plain(name): name for name in known}
    close = difflib.get_close_matches(_plain(word)[:100], lowered, n=1)
    return f'Did you mean "{lowered[close[0]]}"?' if close else ""


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")
