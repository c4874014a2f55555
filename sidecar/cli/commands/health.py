"""
Check that the sidecar of this pod is alive: exits with 0 if it is, else with 1 and the reason.

  offramp health              it is alive: for the health check of a container, or a liveness probe
  offramp health --started    apps can connect
  offramp health --ready      it serves and is not stopping

Requests the path that a probe would request from http.address. If that is empty, connects to the socket for apps.
"""

import argparse
import http.client
from ipaddress import ip_address

from sidecar import config
from sidecar.cli.connection import CallError, address_of, check_reachable
from sidecar.cli.parser import add_config
from sidecar.model.addresses import parse_address
from sidecar.model.text import clean
from sidecar.settings import HttpSettings

#: seconds; a working sidecar responds at once, and probes have deadlines of their own
_TIMEOUT = 5.0


def arguments(parser: argparse.ArgumentParser) -> None:
    choice = parser.add_mutually_exclusive_group()
    for flag, path, text in (
        ("--started", "/startupz", "check that apps can connect"),
        ("--ready", "/readyz", "check that it serves and is not stopping"),
    ):
        choice.add_argument(flag, dest="path", action="store_const", const=path, default="/healthz", help=text)
    add_config(parser)
    parser.set_defaults(address=None)


def run(args: argparse.Namespace) -> int:
    http_settings = config.load_section(HttpSettings, "http", args.config or config.find(), options=args.options)
    if http_settings.address:
        print(clean(_get(http_settings.address, args.path)))
    else:
        check_reachable(address_of(args))
    return 0


def _get(address: str, path: str) -> str:
    """The body of the response. Raises `CallError` unless the status is 200."""
    host, port = parse_address(address)
    connection = http.client.HTTPConnection(_connect_host(host), port, timeout=_TIMEOUT)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read().decode(errors="replace").strip()
    except OSError as error:
        why = str(error.strerror or error or type(error).__name__).lower()
        if isinstance(error, ConnectionResetError):
            raise CallError(f"{_not_offramp(address)} ({why})") from None
        raise CallError(f"no sidecar responds at http://{address}{path}, which is http.address: {why}") from None
    except http.client.HTTPException:
        raise CallError(f"{_not_offramp(address)} (it does not speak HTTP)") from None
    finally:
        connection.close()
    if response.status == http.client.NOT_FOUND:
        raise CallError(f"{_not_offramp(address)} (it has no {path})")
    if response.status != http.client.OK:
        raise CallError(f"{path} returned {response.status}: {' '.join(body.split())}")
    return body


def _not_offramp(address: str) -> str:
    """For a process that does not serve the paths that every sidecar serves."""
    return (
        f"another program listens at {address}: http.address, and the probes of a pod, must have the port on which "
        "the sidecar serves HTTP, 4771 by default"
    )


def _connect_host(host: str) -> str:
    """The host to connect to: loopback for a server that listens on all addresses."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return ("::1" if address.version == 6 else "127.0.0.1") if address.is_unspecified else host
