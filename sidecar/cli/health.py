"""
Whether the sidecar beside this command is alive: exits with 0 if it is, and with 1 and the reason if not.

  offramp health              it works; for the health check of a container, or a liveness probe
  offramp health --started    apps can connect
  offramp health --ready      it serves, and is not stopping

It asks where http.address says, by the paths that probes ask; if that is empty, whether somebody listens for apps.
"""

import argparse
import http.client
from ipaddress import ip_address

from sidecar import config
from sidecar.cli.connection import CallError, address_of, knock
from sidecar.cli.parser import add_config
from sidecar.model.addresses import parse_address

#: seconds for a sidecar whose loop turns; those who ask have deadlines of their own
_TIMEOUT = 5.0


def arguments(parser: argparse.ArgumentParser) -> None:
    choice = parser.add_mutually_exclusive_group()
    for flag, path, text in (
        ("--started", "/startupz", "whether apps can connect"),
        ("--ready", "/readyz", "whether it serves, and is not stopping"),
    ):
        choice.add_argument(flag, dest="path", action="store_const", const=path, default="/healthz", help=text)
    add_config(parser)
    parser.set_defaults(address=None)


def run(args: argparse.Namespace) -> int:
    address = config.http_settings(args.config or config.find(), options=args.options).address
    if address:
        print(_ask(address, args.path))
    else:
        knock(address_of(args))
    return 0


def _ask(address: str, path: str) -> str:
    """What the sidecar says of itself. Raises `CallError` if it is nothing good."""
    host, port = parse_address(address)
    connection = http.client.HTTPConnection(_reachable(host), port, timeout=_TIMEOUT)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        said = response.read().decode(errors="replace").strip()
    except OSError as error:
        why = str(error.strerror or error or type(error).__name__).lower()
        if isinstance(error, ConnectionResetError):
            raise CallError(f"{_stranger(address)} ({why})") from None
        raise CallError(f"no sidecar answers at http://{address}{path}, which is http.address: {why}") from None
    except http.client.HTTPException:
        raise CallError(f"{_stranger(address)} (it does not speak HTTP)") from None
    finally:
        connection.close()
    if response.status == http.client.NOT_FOUND:
        raise CallError(f"{_stranger(address)} (it has no {path})")
    if response.status != http.client.OK:
        raise CallError(f"{path} says {response.status}: {' '.join(said.split())}")
    return said


def _stranger(address: str) -> str:
    """A sidecar has all of the paths that probes ask."""
    return (
        f"somebody else listens at {address}: http.address, and the probes of a pod, must have the port on which "
        "the sidecar serves HTTP, 4771 unless told otherwise"
    )


def _reachable(host: str) -> str:
    """Who listens on all addresses is asked on this machine's own."""
    try:
        found = ip_address(host)
    except ValueError:
        return host
    return ("::1" if found.version == 6 else "127.0.0.1") if found.is_unspecified else host
