"""Errors instead of hangs around forks: a process that has used gRPC may fork, but its child cannot use gRPC.

gRPC would install fork handlers of its own. They skip their work when another thread is inside gRPC, as the thread that
talks to the sidecar always is, and then the child may crash inside of `fork`. So they are switched off, unless the
environment says otherwise: handlers may fork for their own work.
"""

import os

from offramp.errors import Forked

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")


class _State:
    #: this process: kept, because it is compared at every settlement and the system is slower to say it
    pid = os.getpid()
    #: the process that opened a connection first: this one, or one that it was forked from
    first_pid: int | None = None

    def on_fork(self) -> None:
        self.pid = os.getpid()


_state = _State()
os.register_at_fork(after_in_child=_state.on_fork)


def check_can_open() -> None:
    """To be called before a connection is opened. Raises `Forked` in a child of a process that has opened one: gRPC's
    threads do not exist there, and a call would never return."""
    if _state.first_pid is None:
        _state.first_pid = _state.pid
    elif _state.first_pid != _state.pid:
        raise Forked(
            f"process {_state.first_pid} has used gRPC and then forked this one, {_state.pid}, where it does not "
            "work: fork before the first consumer, worker or publisher is opened, or start the process afresh (spawn)"
        )


def check_opened_here(opened_by: int) -> None:
    """Raises `Forked` in any process but `opened_by`, the pid that opened the connection."""
    if _state.pid != opened_by:
        raise Forked(
            f"this was opened by process {opened_by} and is used by {_state.pid}, which was forked from it: open it "
            "after the fork"
        )
