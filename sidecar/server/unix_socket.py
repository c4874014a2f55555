"""A unix socket in a folder that apps may write to, held by one sidecar at a time.

gRPC binds by path. It does not notice a second sidecar: it takes over the path without an error, and removes it when
either of the two stops. So a lock file beside the socket is held for as long as the process lives, and gRPC makes the
socket in a private folder, from which it is moved into place with its final permissions.

Whoever may write to the folder may swap its names at any moment, for links to files of the sidecar. So each step goes
through a handle (of the folder, of the private folder, of the socket), follows no link, and uses a handle only if it is
of something that this user has made and that has no other name. The path that gRPC gets begins with such a handle.
"""

import contextlib
import errno
import grp
import os
import socket
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from sidecar.model.addresses import MAX_SOCKET_PATH
from sidecar.model.errors import StartError
from sidecar.model.lock_file import LockFile, LockHeld


class UnixSocket:
    """Call `prepare`, `show` and `close` in this order. When `keep` says that the socket is lost, `prepare` and `show`
    make another."""

    def __init__(self, path: str, mode: int, group: str = "", setting: str = "listen.socket") -> None:
        """`group` is the name or number of a group; if it is empty, the socket gets the group that the folder gives."""
        self.path = Path(path).absolute()
        self.setting = setting
        self._mode = mode
        self._group = group
        self._lock = LockFile(self.path.with_name(self.path.name + ".lock"))
        #: The name of the private folder is fixed, so that what a dead sidecar left is removed.
        self._private_name = f".{zlib.crc32(os.fsencode(self.path.name)) & 0xFFFF:04x}"
        #: The name of the socket in there is new each time: gRPC removes the path that it has bound when its server
        #: ends, and by then the number of the handle in it may stand for another folder.
        self._private_socket = ""
        self._folder = _Handle()
        self._private = _Handle()
        #: As long as it is open, no other file gets the inode number of the socket.
        self._socket = _Handle()

    def __str__(self) -> str:
        return f"the socket {self.path} ({self.setting})"

    def prepare(self, bind: Callable[[str], object]) -> None:
        """Take the lock and let `bind` make a socket that no app can see yet: it is called, at most once, with the path
        to bind. Raises `StartError`."""
        too_long = len(os.fsencode(self.path)) - MAX_SOCKET_PATH
        if too_long > 0:
            raise StartError(f"{self}: its path is too long by {too_long} bytes for a unix socket")
        with self._explained():
            self._open_folder()
            self._keep_lock()
            self._check_vacant()
            self._make(bind)
            if self._group:
                self._set_group()

    def show(self) -> None:
        """Let apps connect. Called once the server has started. Raises `StartError`."""
        with self._explained():
            os.chmod(self._socket.path, self._mode)
            # A rename replaces what a dead sidecar left, and nobody ever sees the socket with wider permissions. It
            # replaces a name of this folder, whatever that linked to.
            os.rename(
                self._private_socket, self.path.name, src_dir_fd=self._private.number, dst_dir_fd=self._folder.number
            )
            self._remove_private_folder()

    def keep(self) -> bool:
        """Whether the socket is where apps look for it. Takes the lock again if somebody removed its file.

        Raises `StartError` if another sidecar holds it by now, or if the folder cannot be used."""
        with self._explained():
            self._keep_lock()
            try:
                return self._socket.is_of(self.path.lstat())
            except FileNotFoundError:
                return False

    def close(self) -> None:
        """Called after the server has stopped, and whether or not `prepare` succeeded."""
        if self._lock.held:
            with contextlib.suppress(OSError):
                if self._socket.is_of(self._folder.stat(self.path.name)):
                    os.unlink(self.path.name, dir_fd=self._folder.number)
            self._remove_private_folder()
            self._lock.release()
        for handle in (self._socket, self._private, self._folder):
            handle.close()

    def _open_folder(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._folder.open(self.path.parent, os.O_PATH | os.O_DIRECTORY)

    def _keep_lock(self) -> None:
        if not self._lock.in_place():
            self._lock.release()
            self._open_folder()
            self._lock.take(shared_folder=self._folder.number)

    def _check_vacant(self) -> None:
        """Raises `StartError` if there is something at the path that no dead sidecar has left."""
        with contextlib.closing(_Handle()) as found, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                found.open(self.path.name, os.O_PATH, self._folder)
            except FileNotFoundError:
                return
            if not stat.S_ISSOCK(found.stat().st_mode):
                raise StartError(f"{self}: a file of that name exists, and it is not a socket")
            # Whoever listens may be too busy to accept.
            probe.setblocking(False)
            try:
                probe.connect(found.path)
            except ConnectionRefusedError:
                return
            except BlockingIOError:
                pass
            raise StartError(f"{self} is in use by another program, which accepts connections on it")

    def _make(self, bind: Callable[[str], object]) -> None:
        self._remove_private_folder()
        os.mkdir(self._private_name, 0o700, dir_fd=self._folder.number)
        self._private.open(self._private_name, os.O_DIRECTORY, self._folder)
        self._check(_is_private_folder(self._private))
        self._private_socket = os.urandom(8).hex()
        bind(f"{self._private.path}/{self._private_socket}")
        self._socket.open(self._private_socket, os.O_PATH, self._private)
        self._check(_is_own_socket(self._socket.stat()) and self._socket.stat().st_nlink == 1)

    def _check(self, ours: bool) -> None:
        if not ours:
            raise OSError(errno.EPERM, "another process has put something in its place", self._private_name)

    def _remove_private_folder(self) -> None:
        """Of this socket, or of a dead sidecar. What cannot be removed is in the way of `_make`, which says so."""
        with contextlib.closing(_Handle()) as found, contextlib.suppress(OSError):
            found.open(self._private_name, os.O_DIRECTORY, self._folder)
            if not _is_private_folder(found):
                return
            for name in os.listdir(found.number):
                # Another folder of this user may have been moved here.
                if _is_own_socket(found.stat(name)):
                    os.unlink(name, dir_fd=found.number)
            os.rmdir(self._private_name, dir_fd=self._folder.number)

    def _set_group(self) -> None:
        setting = f"{self.setting}_group: {self._group}"
        try:
            number = int(self._group) if self._group.isdecimal() else grp.getgrnam(self._group).gr_gid
        except KeyError as error:
            raise StartError(f"{setting} is not a group of this machine; use a name of one, or a number") from error
        try:
            os.chown(self._socket.path, -1, number)
        except OSError as error:
            mine = ", ".join(map(str, sorted({os.getgid(), *os.getgroups()})))
            text = f"{setting}: the sidecar's user {os.getuid()} cannot give the socket to it; it is in groups {mine}"
            raise StartError(text) from error

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except LockHeld as error:
            raise StartError(f"{self} is held by another sidecar, process {error.holder}") from error
        except OSError as error:
            link = " (symbolic links are not followed)" if error.errno in (errno.ELOOP, errno.ENOTDIR) else ""
            where = self.path.parent / os.fsdecode(error.filename or "")
            raise StartError(f"{self}: {error.strerror}{link}: {where}") from error
        except RuntimeError as error:
            raise StartError(f"{self}: {error}") from error


class _Handle:
    """An open file or folder, by which it can be used whatever becomes of its name."""

    def __init__(self) -> None:
        self._number: int | None = None

    @property
    def number(self) -> int:
        assert self._number is not None
        return self._number

    @property
    def path(self) -> str:
        """A path that leads to exactly this file, even for calls that take no handle."""
        return f"/proc/self/fd/{self.number}"

    def open(self, name: str | Path, flags: int, folder: "_Handle | None" = None) -> None:
        """In place of what was open before. In a folder that is given by its handle, links are not followed."""
        self.close()
        if folder is None:
            self._number = os.open(name, flags)
        else:
            self._number = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder.number)

    def stat(self, name: str = "") -> os.stat_result:
        """Of itself, or of a name in this folder."""
        return os.stat(name, dir_fd=self.number, follow_symlinks=False) if name else os.fstat(self.number)

    def is_of(self, found: os.stat_result) -> bool:
        return self._number is not None and os.path.samestat(self.stat(), found)

    def close(self) -> None:
        if self._number is not None:
            os.close(self._number)
            self._number = None


def _is_private_folder(handle: _Handle) -> bool:
    found = handle.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _is_own_socket(found: os.stat_result) -> bool:
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()
