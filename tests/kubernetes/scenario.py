"""What a pod with the sidecar goes through, point by point. Each prints what was seen, or fails."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.kubernetes.environment import Environment, inner_process

T = TypeVar("T")

#: seconds that anything may take on a busy machine
WAIT_TIMEOUT = 180.0
#: the same for what happens at once. Far more than it takes, and far less than a lease lasts: if the end of a session
#: were not seen, its batch would be back in minutes
_AT_ONCE = 10.0


def eventually(look: Callable[[], T], what: str) -> T:
    ends = time.monotonic() + WAIT_TIMEOUT
    while not (seen := look()):
        assert time.monotonic() < ends, f"did not happen within {WAIT_TIMEOUT:g} s: {what}; last seen: {seen!r}"
        time.sleep(0.02)
    return seen


class Scenario:
    """The points, in their order. Records are published along the way; the last point looks for every one of them."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._published: set[str] = set()

    def play(self) -> None:
        for point in (
            self.the_app_starts_after_the_socket_is_there,
            self.a_killed_sidecar_is_restarted_alone_and_the_workers_go_on,
            self.a_killed_worker_gives_its_batch_back_at_once,
            self.at_deletion_the_app_drains_first_and_the_sidecar_ends_last,
            self.the_next_pod_does_the_rest_and_nothing_is_lost,
            self.an_embedded_broker_that_goes_with_the_pod_is_refused,
            self.a_job_completes_although_the_sidecar_runs,
        ):
            seen = point()
            print(f"ok  {point.__name__.replace('_', ' ')}\n      {seen}", flush=True)

    def the_app_starts_after_the_socket_is_there(self) -> str:
        self._environment.start_php()
        eventually(lambda: len(self._environment.journal.values("start")) >= 4, "four PHP processes have started")
        seen = self._environment.journal.values("start")
        assert set(seen) == {"with-socket"}, seen
        times = [eventually(lambda name=name: self._started(name), f"{name} runs") for name in ("offramp", "orders")]
        assert times == sorted(times)
        return f"sidecar started {times[0]}, app {times[1]}; all {len(seen)} processes found the socket"

    def a_killed_sidecar_is_restarted_alone_and_the_workers_go_on(self) -> str:
        app, first = self._environment.container("orders", "orders"), self._process("offramp")
        self._publish([f"a{number}" for number in range(2000)])
        eventually(lambda: len(self._environment.journal.done()) > 50, "the workers work")
        memory = _resident(first)
        os.kill(first, signal.SIGKILL)
        killed, before = time.monotonic(), len(self._environment.journal.done())
        assert before < len(self._published), "there is nothing left to go on with"
        eventually(
            lambda: self._environment.container("orders", "offramp")["restartCount"] == 1, "the sidecar is restarted"
        )
        eventually(lambda: self._published <= self._environment.journal.done(), "all records are done")
        took = time.monotonic() - killed
        after = self._environment.container("orders", "orders")
        assert (after["restartCount"], after["containerID"]) == (0, app["containerID"])
        return (
            f"killed with -9 at {before} of 2000 records, all done {took:.1f} s later; restarts: sidecar 1, app 0; "
            f"the sidecar had {memory >> 20} MiB"
        )

    def a_killed_worker_gives_its_batch_back_at_once(self) -> str:
        self._publish(["hang"])
        (hung,) = eventually(lambda: self._noted("take", "hang"), "a worker has it")
        os.kill(inner_process(self._process("orders"), hung), signal.SIGKILL)
        killed = time.monotonic()
        _, second = eventually(lambda: len(all_ := self._noted("take", "hang")) > 1 and all_, "another worker has it")
        took = time.monotonic() - killed
        assert second != hung
        assert took < _AT_ONCE, f"another worker had it only {took:.1f} s later"
        eventually(lambda: "hang" in self._environment.journal.done(), "it is done")
        return f"process {hung} killed with -9, process {second} had its batch {took * 1000:.0f} ms later"

    def at_deletion_the_app_drains_first_and_the_sidecar_ends_last(self) -> str:
        self._publish([f"slow-{number}" for number in range(60)])
        eventually(lambda: len(self._noted("take", "slow")) >= 4, "four workers work")
        sidecar, app = self._process("offramp"), self._process("orders")
        self._environment.node.remove("orders")
        began = time.monotonic()
        eventually(lambda: not _alive(app), "the app ends")
        assert _alive(sidecar), "the sidecar ended before the app"
        apart = time.monotonic() - began
        eventually(lambda: not _alive(sidecar), "the sidecar ends")
        whole = time.monotonic() - began
        held = [value for value in self._environment.journal.values("take") if value.startswith("slow")]
        done = {value for value in self._environment.journal.done() if value.startswith("slow")}
        assert set(held) == done, f"taken and not done: {set(held) - done}"
        log = self._environment.node.log("orders", "offramp")
        assert '"stopped"' in log[-1], log[-3:]
        eventually(lambda: not self._environment.node.status("orders"), "the pod is gone")
        return (
            f"{len(done)} of 60 records were taken, and all of those finished; the app ended after {apart:.1f} s, the "
            f"sidecar {whole - apart:.1f} s after it"
        )

    def the_next_pod_does_the_rest_and_nothing_is_lost(self) -> str:
        before = [value for value in self._environment.journal.values("take") if value.startswith("slow")]
        self._environment.start_php()
        eventually(lambda: self._published <= self._environment.journal.done(), "every record is done")
        taken = self._environment.journal.values("take")
        again = {value for value in before if taken.count(value) > 1}
        assert not again, f"settled before the deletion, and delivered again: {again}"
        self._environment.node.remove("orders")
        return f"{len(self._published)} published, {len(self._published)} done, {len(taken)} deliveries"

    def an_embedded_broker_that_goes_with_the_pod_is_refused(self) -> str:
        self._environment.start_php_on_an_empty_dir()

        def said() -> list[str]:
            lines = self._environment.node.log("forgetful", "offramp")
            return [line for line in lines if "is on an emptyDir volume, which goes with the pod" in line]

        (line, *_) = eventually(said, "the sidecar says why it does not start")
        self._environment.node.remove("forgetful")
        return line

    def a_job_completes_although_the_sidecar_runs(self) -> str:
        self._environment.start_job()
        phase = "Pending"

        def completed() -> bool:
            nonlocal phase
            phase = self._environment.node.status("reconcile").get("phase", phase)
            return phase in ("Succeeded", "Failed")

        eventually(completed, "the Job's pod has completed")
        said = self._environment.node.log("reconcile", "reconcile")
        assert (phase, said[-1]) == ("Succeeded", "all payments are reconciled"), said
        last = self._environment.node.log("reconcile", "offramp")[-1]
        return f"phase {phase}: {said[-1]}; the last line of the sidecar's log: {last}"

    def _publish(self, values: list[str]) -> None:
        self._environment.publish(values)
        self._published.update(values)

    def _process(self, container: str) -> int:
        return eventually(lambda: self._environment.process("orders", container) or 0, f"{container} runs")

    def _started(self, container: str) -> str:
        """When a container was started, by the kubelet's word; its status is a little behind."""
        state = self._environment.container("orders", container).get("state", {})
        return str(state.get("running", {}).get("startedAt", ""))

    def _noted(self, what: str, value: str) -> list[int]:
        """The processes that noted a value, or one that begins so."""
        lines = self._environment.journal.lines()
        return [line.process for line in lines if line.what == what and line.value.startswith(value)]


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _resident(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
