"""Command-line arguments that several commands share. A usage error is one line and exit code 2."""

import argparse
import inspect
from datetime import UTC, datetime
from typing import NoReturn

from sidecar.model.units import FormatError, parse_duration


class Parser(argparse.ArgumentParser):
    """Prints its help text as it is written, and reports an error in one line with exit code 2."""

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
        help="the configuration file (default: $OFFRAMP_CONFIG, ./offramp.yaml or /etc/offramp/offramp.yaml)",
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
    """--address and credentials, for commands that call a running sidecar."""
    parser.add_argument(
        "--address",
        metavar="ADDRESS",
        help="unix:/path/to.sock or host:port of the sidecar (default: $OFFRAMP_ADDRESS, else from the configuration)",
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="file with the token to send, if one is required ($OFFRAMP_TOKEN_FILE)"
    )
    parser.add_argument(
        "--tls-ca", metavar="FILE", help="certificate authorities to trust, for a sidecar with TLS ($OFFRAMP_CA)"
    )
    parser.add_argument(
        "--tls-certificate", metavar="FILE", help="client certificate, if one is required ($OFFRAMP_CERTIFICATE)"
    )
    parser.add_argument("--tls-key", metavar="FILE", help="private key of the client certificate ($OFFRAMP_KEY)")
    parser.add_argument(
        "--tls-server-name", metavar="NAME", help="the name in the sidecar's certificate ($OFFRAMP_SERVER_NAME)"
    )
    add_config(parser)


def duration(text: str) -> float:
    """Seconds, for an argument such as 200ms, 5s or 10m."""
    try:
        seconds = parse_duration(text)
    except FormatError as error:
        raise argparse.ArgumentTypeError(f'"{text}" {error}') from None
    if seconds < 0:
        raise argparse.ArgumentTypeError(f'"{text}" is negative')
    return seconds


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 16 and int(text)):
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number of at least 1')
    return int(text)


def timestamp(text: str) -> int:
    """Milliseconds since 1970, for a time in ISO 8601. Without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is not a time such as 2025-06-01T12:00:00Z') from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
