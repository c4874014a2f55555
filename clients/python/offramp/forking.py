"""What a fork does to gRPC: a process that has used it may fork, but what it forks cannot use it.

gRPC would prepare for forks with handlers of its own. They skip their work when another thread is inside gRPC, as the
thread that talks to the sidecar always is, and then the child may die of it inside of `fork`. So they are switched off,
unless the environment says otherwise: handlers may fork for whatever they like.
"""

import os

from offramp.errors import Forked

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")


class _First:
    """The process that opened a connection first: this one, or one that it was forked from."""

    pid: int | None = None


_first = _First()


def begin() -> None:
    """To be called before a connection is opened. Raises `Forked` in a child of a process that has opened one: its
    threads are not there, and whoever calls it would wait for ever."""
    if _first.pid is None:
        _first.pid = os.getpid()
    elif _first.pid != os.getpid():
        raise Forked(
            f"process {_first.pid} has used gRPC and then forked this one, {os.getpid()}, where it does not work: fork "
            "before the first consumer, worker or publisher is opened, or start the process afresh (spawn)"
        )


def check(opened_by: int) -> None:
    """Raises `Forked` in any process but the one that opened the connection."""
    if os.getpid() != opened_by:
        raise Forked(
            f"this was opened by process {opened_by} and is used by {os.getpid()}, which was forked from it: open it "
            "after the fork"
        )
