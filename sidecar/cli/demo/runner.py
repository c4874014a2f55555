"""The demo from start to end: folder, processes, script, display, audit."""

import contextlib
import io
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import grpc

from sidecar.cli.demo import audit
from sidecar.cli.demo.display import Display, ScreenDisplay
from sidecar.cli.demo.plan import Folder, Plan, configuration
from sidecar.cli.demo.processes import Process, Processes, ProcessFailed, wait_for_socket
from sidecar.cli.demo.script import Script
from sidecar.cli.demo.snapshot import snapshots

_START_TIMEOUT, _STOP_TIMEOUT = 60.0, 60.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(plan: Plan, *, keep: bool) -> int:
    """Returns the exit code: 0 if every record is accounted for."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal whose encoding has no bars shows question marks.
        sys.stdout.reconfigure(errors="replace")
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    folder = _make_folder()
    keep_folder = True
    try:
        result = _play_and_audit(plan, folder)
        keep_folder = keep or not result.balanced
        return 0 if result.balanced else 1
    except KeyboardInterrupt:
        keep_folder = keep
        _print_error("Interrupted. All processes of the demo have ended.")
        raise
    finally:
        if keep_folder:
            _print_error(f"Everything is kept in {folder.path}")
        else:
            shutil.rmtree(folder.path, ignore_errors=True)


def _make_folder() -> Folder:
    """A temporary folder with a short path, because the path of a unix socket has at most about 100 bytes."""
    folder = Folder(Path(tempfile.mkdtemp(prefix="offramp-demo-")))
    if len(os.fsencode(folder.socket)) < 100:
        return folder
    folder.path.rmdir()
    return Folder(Path(tempfile.mkdtemp(prefix="offramp-demo-", dir="/tmp")))


def _play_and_audit(plan: Plan, folder: Folder) -> audit.AuditResult:
    on_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    with (ScreenDisplay if on_terminal else Display)(plan) as display:
        _play(plan, folder, display)
        display.tell("The audit compares the disk with the journals of publishers and workers.")
        result = audit.audit_folder(folder)
    print("", *audit.verdict(result, display.ink), sep="\n", flush=True)
    return result


def _play(plan: Plan, folder: Folder, display: Display) -> None:
    """Returns when all processes have ended. Raises `ProcessFailed` if one ended too early."""
    folder.make()
    plan.save(folder)
    folder.config.write_text(configuration(plan, folder))
    with Processes(folder) as processes:
        sidecar = _start_sidecar(folder, processes, display)
        script = Script(plan, folder, processes, display.tell)
        try:
            _follow_script(plan, folder, processes, script, display)
        except grpc.RpcError as error:
            sidecar.wait(_STOP_TIMEOUT)
            raise ProcessFailed("the sidecar ended too early") from error
        _stop(sidecar, script)


def _start_sidecar(folder: Folder, processes: Processes, display: Display) -> Process:
    display.tell("A sidecar hands orders from a broker to worker processes, in batches.")
    began = time.monotonic()
    sidecar = processes.sidecar()
    wait_for_socket(folder.socket, sidecar, _START_TIMEOUT)
    took = time.monotonic() - began
    display.tell(f"The sidecar is up after {took:.1f} s: a unix socket, and SQLite as its broker.")
    return sidecar


def _follow_script(plan: Plan, folder: Folder, processes: Processes, script: Script, display: Display) -> None:
    with grpc.insecure_channel(folder.address) as channel:
        for now in snapshots(channel):
            processes.check()
            goes_on = script.advance(now)
            display.show(replace(now, killed=tuple(script.killed)))
            if not goes_on:
                return
            if display.elapsed > plan.timeout:
                display.tell(f"Not all is done after {plan.timeout:.0f} s. The audit shows what is missing.")
                return


def _stop(sidecar: Process, script: Script) -> None:
    """Stops the workers first, so that they can settle what they hold with the sidecar."""
    for worker in script.workers.values():
        worker.terminate()
    for worker in script.workers.values():
        worker.wait(_STOP_TIMEOUT)
    sidecar.terminate()
    sidecar.wait(_STOP_TIMEOUT)


def _interrupt(number: int, frame: object) -> None:
    """Handles every signal as Ctrl-C, so that no process and no folder is left behind.

    Further signals are ignored, such as those of a terminal that is closed: they would disturb the cleanup.
    """
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _print_error(text: str) -> None:
    # The terminal may be gone.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)
