"""Addresses as people write them: `host:port`."""

import ipaddress


def split_address(text: str) -> tuple[str, int] | None:
    """Host and port of `host:port` or `[::1]:port`; None if it is neither."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host and not bracketed) or any(c.isspace() for c in host):
        return None
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 1 << 16):
        return None
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether nobody but this machine can reach a `host:port`."""
    parts = split_address(address)
    if parts is None or parts[0] == "localhost":
        return parts is not None
    try:
        return ipaddress.ip_address(parts[0]).is_loopback
    except ValueError:
        return False
