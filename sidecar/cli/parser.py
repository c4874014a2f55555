"""Arguments: help for people, and mistakes in one line."""

import argparse
import inspect
from collections.abc import Callable
from typing import NoReturn, TypeVar

from sidecar.model.units import FormError, parse_duration

_T = TypeVar("_T")


class Parser(argparse.ArgumentParser):
    """Shows its text as it is written, and fails with one line and code 2."""

    def __init__(self, *, prog: str, help_text: str, usage: str | None = None) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=inspect.cleandoc(help_text),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"offramp: {message} (see {self.prog} --help)\n")


def add_config(parser: argparse.ArgumentParser) -> None:
    """-c and --set, for commands that read the configuration."""
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        help="the configuration (default: $OFFRAMP_CONFIG, ./offramp.yaml or /etc/offramp/offramp.yaml)",
    )
    parser.add_argument(
        "--set",
        dest="options",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override a key, as in --set log.level=debug; may be repeated",
    )


def add_address(parser: argparse.ArgumentParser) -> None:
    """--address, for commands that call a running sidecar."""
    parser.add_argument(
        "--address",
        metavar="ADDRESS",
        help="unix:/path/to.sock or host:port of the sidecar (default: $OFFRAMP_ADDRESS, or as configured)",
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="the token to show, where one is needed (default: $OFFRAMP_TOKEN_FILE)"
    )
    parser.add_argument(
        "--tls-ca", metavar="FILE", help="whom to trust, for a sidecar that speaks TLS (default: $OFFRAMP_CA)"
    )
    parser.add_argument(
        "--tls-certificate", metavar="FILE", help="the certificate to show, if asked for one ($OFFRAMP_CERTIFICATE)"
    )
    parser.add_argument("--tls-key", metavar="FILE", help="its private key ($OFFRAMP_KEY)")
    parser.add_argument(
        "--tls-server-name", metavar="NAME", help="the name in the sidecar's certificate ($OFFRAMP_SERVER_NAME)"
    )
    add_config(parser)


def duration(text: str) -> float:
    """Seconds, for an argument such as 200ms, 5s or 10m."""
    return _converted(_duration, text)


def count(text: str) -> int:
    """A whole number of at least 1."""
    return _converted(_count, text)


def _duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 0:
        raise FormError("is less than nothing")
    return seconds


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 16 and int(text)):
        raise FormError("is not a whole number of at least 1")
    return int(text)


def _converted(convert: Callable[[str], _T], text: str) -> _T:
    try:
        return convert(text)
    except FormError as error:
        raise argparse.ArgumentTypeError(f'"{text}" {error}') from None
