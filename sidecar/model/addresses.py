"""Addresses: `host:port`, and paths of unix sockets."""

import ipaddress

#: bytes: the longest path that the kernel accepts for a unix socket
MAX_SOCKET_PATH = 107


def split_address(text: str) -> tuple[str, int] | None:
    """Host and port of `host:port` or `[::1]:port`; None if it is neither."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host and not bracketed) or any(c.isspace() for c in host):
        return None
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 1 << 16):
        return None
    return host.strip("[]"), int(port)


def parse_address(text: str) -> tuple[str, int]:
    """As `split_address`, for an address that is known to be valid. Raises `ValueError` if it is not."""
    parts = split_address(text)
    if parts is None:
        raise ValueError(f'"{text}" is not host:port')
    return parts


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """Whether a `host:port` can be reached from this machine only."""
    parts = split_address(address)
    if parts is None or parts[0] == "localhost":
        return parts is not None
    try:
        return ipaddress.ip_address(parts[0]).is_loopback
    except ValueError:
        return False
