"""Where apps connect: the unix socket and the loopback port, each held by one sidecar at a time.

gRPC itself would not notice a second sidecar: it takes over a unix path without an error and removes it when either
stops, and it shares TCP ports silently. So a lock beside the socket, held for as long as the process lives, says whose
it is, and the socket is made by gRPC in a private folder and moved into place with its final permissions.
"""

import contextlib
import errno
import fcntl
import grp
import os
import shutil
import socket
import stat
import zlib
from pathlib import Path

import grpc
import grpc.aio

from sidecar.model.addresses import is_loopback
from sidecar.model.errors import StartError

#: bytes; what the kernel takes as the path of a unix socket
_MOST_PATH = 107
#: TCP_LISTEN in /proc/net/tcp
_LISTENING = "0A"


def split_address(address: str) -> tuple[str, int]:
    """host and port of `host:port` or `[host]:port`."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Lock:
    """A file that one process holds, and that says which. The kernel lets go of it when the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    @property
    def held(self) -> bool:
        return self._file is not None

    def take(self, what: str) -> None:
        """Raises `StartError`, which names the holder, and `OSError`."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(file, 100).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise StartError(f"{what} is held by another sidecar, process {holder}") from error
        os.truncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def release(self) -> None:
        """The file stays: removing it would let two others each hold a file of that name."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class UnixListener:
    """One unix socket of a gRPC server: `prepare`, `show`, `close`."""

    def __init__(self, path: str, mode: int, group: str = "", setting: str = "listen.socket") -> None:
        """`group` is a name or a number; empty: as the folder says."""
        self.path = Path(path).absolute()
        self._mode = mode
        self._group = group
        self._setting = setting
        self._shown = False
        self._lock = Lock(self.path.with_name(self.path.name + ".lock"))
        #: where gRPC makes the socket. The name is fixed, so that one left by a dead sidecar is cleared away, and
        #: short, so that this path is not the one that is too long.
        self._hidden = self.path.with_name(f".{zlib.crc32(os.fsencode(self.path.name)) & 0xFFFF:04x}") / "s"

    def prepare(self, server: grpc.aio.Server) -> None:
        """Take the lock and give the server a socket that nobody sees yet. Raises `StartError`."""
        what = f"the socket {self.path} ({self._setting})"
        length = max(len(os.fsencode(path)) for path in (self.path, self._hidden))
        if length > _MOST_PATH:
            raise StartError(f"{what}: its path is too long by {length - _MOST_PATH} bytes for a unix socket")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.take(what)
            self._check_place(what)
            shutil.rmtree(self._hidden.parent, ignore_errors=True)
            self._hidden.parent.mkdir(mode=0o700)
            server.add_insecure_port(f"unix:{self._hidden}")
            if self._group:
                self._give_to_group()
        except OSError as error:
            raise StartError(f"{what}: {error.strerror}: {error.filename}") from error
        except RuntimeError as error:
            raise StartError(f"{what}: {error}") from error

    def show(self) -> None:
        """Let apps connect: called once the server serves."""
        self._hidden.chmod(self._mode)
        # A rename replaces what a dead sidecar left, and the socket is never there with wider permissions.
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

    def _give_to_group(self) -> None:
        setting = f"{self._setting}_group: {self._group}"
        try:
            number = int(self._group) if self._group.isdecimal() else grp.getgrnam(self._group).gr_gid
        except KeyError as error:
            raise StartError(f"{setting} is not a group of this machine; a number serves as well") from error
        try:
            os.chown(self._hidden, -1, number)
        except OSError as error:
            mine = ", ".join(map(str, sorted({os.getgid(), *os.getgroups()})))
            text = f"{setting}: the sidecar's user {os.getuid()} cannot give the socket to it; it is in groups {mine}"
            raise StartError(text) from error

    def _check_place(self, what: str) -> None:
        try:
            kind = self.path.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(kind):
            raise StartError(f"{what}: there is something else of that name, which is not a socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(self.path))
            except ConnectionRefusedError:
                return
        raise StartError(f"{what} is in use by another program, which answers on it")


def listen_tcp(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    """Let the server listen on an address, with TLS if there are credentials; answers the address with its real port.
    Raises `StartError`."""
    host, port = split_address(address)
    if credentials is None and not is_loopback(address):
        raise StartError(
            f"listen.tcp: {address} is not a loopback address. Without TLS and tokens anybody on the network could "
            "take records; use 127.0.0.1 or [::1]"
        )
    try:
        # gRPC only says that it failed, so ask the kernel first; it binds with SO_REUSEADDR just as this does.
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
        where = join_address(host, port)
        bound = server.add_secure_port(where, credentials) if credentials else server.add_insecure_port(where)
        return join_address(host, bound)
    except (OSError, RuntimeError) as error:
        raise StartError(cannot_listen("listen.tcp", address, error)) from error


def cannot_listen(setting: str, address: str, error: Exception) -> str:
    """Why there is no listening on an address, for people."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{setting}: {address} is in use{_by_whom(split_address(address)[1])}"
    return f"{setting}: {address}: {error.strerror if isinstance(error, OSError) else error}"


def _by_whom(port: int) -> str:
    """The process that listens on a port, where the kernel tells: own processes on Linux."""
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
