"""The unix sockets and the TCP port that apps connect to, each held by one sidecar at a time.

gRPC does not notice a second sidecar: it takes over the path of a unix socket without an error, removes it when either
of the two stops, and shares TCP ports silently. So a lock file beside the socket is held for as long as the process
lives, and gRPC makes the socket in a private folder, from which it is moved into place with its final permissions.
"""

import contextlib
import errno
import grp
import os
import shutil
import socket
import stat
import zlib
from pathlib import Path

import grpc
import grpc.aio

from sidecar.model.addresses import MAX_SOCKET_PATH, is_loopback, join_address, parse_address
from sidecar.model.errors import StartError
from sidecar.model.lock_file import LockFile, LockHeld

#: TCP_LISTEN in /proc/net/tcp
_LISTENING = "0A"


class UnixListener:
    """One unix socket of a gRPC server. Call `prepare`, `show` and `close` in this order."""

    def __init__(self, path: str, mode: int, group: str = "", setting: str = "listen.socket") -> None:
        """`group` is the name or number of a group; if it is empty, the socket gets the group that the folder gives."""
        self.path = Path(path).absolute()
        self._mode = mode
        self._group = group
        self._setting = setting
        self._shown = False
        self._lock = LockFile(self.path.with_name(self.path.name + ".lock"))
        #: where gRPC makes the socket. The name is fixed, so that what a dead sidecar left is removed, and short, so
        #: that this path is not the one that is too long.
        self._hidden = self.path.with_name(f".{zlib.crc32(os.fsencode(self.path.name)) & 0xFFFF:04x}") / "s"

    def prepare(self, server: grpc.aio.Server) -> None:
        """Take the lock and give the server a socket that no app can see yet. Raises `StartError`."""
        what = f"the socket {self.path} ({self._setting})"
        length = max(len(os.fsencode(path)) for path in (self.path, self._hidden))
        if length > MAX_SOCKET_PATH:
            raise StartError(f"{what}: its path is too long by {length - MAX_SOCKET_PATH} bytes for a unix socket")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.take()
            self._check_path(what)
            shutil.rmtree(self._hidden.parent, ignore_errors=True)
            self._hidden.parent.mkdir(mode=0o700)
            server.add_insecure_port(f"unix:{self._hidden}")
            if self._group:
                self._set_group()
        except LockHeld as error:
            raise StartError(f"{what} is held by another sidecar, process {error.holder}") from error
        except OSError as error:
            raise StartError(f"{what}: {error.strerror}: {error.filename}") from error
        except RuntimeError as error:
            raise StartError(f"{what}: {error}") from error

    def show(self) -> None:
        """Let apps connect. Called once the server has started."""
        self._hidden.chmod(self._mode)
        # A rename replaces what a dead sidecar left, and nobody ever sees the socket with wider permissions.
        self._hidden.rename(self.path)
        self._shown = True
        self._hidden.parent.rmdir()

    def close(self) -> None:
        """Called after the server has stopped, and whether or not `prepare` succeeded."""
        if self._shown:
            self.path.unlink(missing_ok=True)
        if self._lock.held:
            shutil.rmtree(self._hidden.parent, ignore_errors=True)
            self._lock.release()

    def _set_group(self) -> None:
        setting = f"{self._setting}_group: {self._group}"
        try:
            number = int(self._group) if self._group.isdecimal() else grp.getgrnam(self._group).gr_gid
        except KeyError as error:
            raise StartError(f"{setting} is not a group of this machine; use a name of one, or a number") from error
        try:
            os.chown(self._hidden, -1, number)
        except OSError as error:
            mine = ", ".join(map(str, sorted({os.getgid(), *os.getgroups()})))
            text = f"{setting}: the sidecar's user {os.getuid()} cannot give the socket to it; it is in groups {mine}"
            raise StartError(text) from error

    def _check_path(self, what: str) -> None:
        try:
            kind = self.path.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(kind):
            raise StartError(f"{what}: a file of that name exists, and it is not a socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(self.path))
            except ConnectionRefusedError:
                return
        raise StartError(f"{what} is in use by another program, which accepts connections on it")


def listen_tcp(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    """Make the server listen on an address, with TLS if there are credentials. Returns the address with its real port.

    Raises `StartError`.
    """
    host, port = parse_address(address)
    if credentials is None and not is_loopback(address):
        raise StartError(
            f"listen.tcp: {address} is not a loopback address. Without TLS and tokens anyone on the network could "
            "take records; use 127.0.0.1 or [::1]"
        )
    try:
        # gRPC reports a failure without its reason, so bind once before. Like gRPC, this sets SO_REUSEADDR.
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
        where = join_address(host, port)
        bound = server.add_secure_port(where, credentials) if credentials else server.add_insecure_port(where)
        return join_address(host, bound)
    except (OSError, RuntimeError) as error:
        raise StartError(cannot_listen("listen.tcp", address, error)) from error


def cannot_listen(setting: str, address: str, error: Exception) -> str:
    """The error message for an address that cannot be bound."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{setting}: {address} is in use{_listener_of(parse_address(address)[1])}"
    return f"{setting}: {address}: {error.strerror if isinstance(error, OSError) else error}"


def _listener_of(port: int) -> str:
    """` by process PID (NAME)` for the listener on a port, or "". Linux shows this for processes of the same user."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{fields[9]}]")
    for link in Path("/proc").glob("[0-9]*/fd/*") if sockets else ():
        with contextlib.suppress(OSError):
            if os.readlink(link) in sockets:
                pid = link.parts[2]
                return f" by process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return ""
