"""An app that attacks the folder of a socket: `python -m tests.security.swapper FOLDER VICTIMS SOCKET USER`.

As USER, it swaps the names that a sidecar uses in FOLDER for links to VICTIMS, as fast as it can. It prints a line for
every hundred names that it has swapped.
"""

import contextlib
import itertools
import os
import sys
import zlib


def private_folder(socket: str) -> str:
    """Where a sidecar makes a socket of this name."""
    return f".{zlib.crc32(os.fsencode(socket)) & 0xFFFF:04x}"


def swap(folder: int, name: str, put: int, target: str) -> None:
    """Move a name aside, and put something else in its place."""
    with contextlib.suppress(OSError):
        os.rename(name, f"aside-{put % 8}", src_dir_fd=folder, dst_dir_fd=folder)
    with contextlib.suppress(OSError):
        if put % 3 == 0:
            os.link(target, name, dst_dir_fd=folder)
        elif put % 3 == 1:
            os.symlink(target, name, dir_fd=folder)
        else:
            os.symlink(os.path.dirname(target), name, dir_fd=folder)


def inside(folder: int, name: str, target: str) -> None:
    """The same with what is in the private folder, as far as this user may."""
    with contextlib.suppress(OSError):
        private = os.open(name, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        with contextlib.suppress(OSError):
            for one in os.listdir(private):
                os.unlink(one, dir_fd=private)
                os.symlink(target, one, dir_fd=private)
        os.close(private)


def clear(folder: int, names: list[str]) -> None:
    """So that the sidecar does not always find what it would refuse."""
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=folder)


def main(path: str, victims: str, socket: str, user: str) -> None:
    if int(user) != os.getuid():
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    folder = os.open(path, os.O_DIRECTORY)
    private = private_folder(socket)
    names = [socket, f"{socket}.lock", private]
    targets = [os.path.join(victims, name) for name in ("database", "key")]
    for put in itertools.count():
        target = targets[put % len(targets)]
        if put % 4 == 0:
            inside(folder, private, target)
        # One name at a time, and all of them away in between, so that each step of a start is met.
        swap(folder, names[put // 5 % len(names)], put, target)
        if put % 2:
            clear(folder, names)
        if put % 100 == 99:
            print(put + 1, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
