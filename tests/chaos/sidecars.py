"""The sidecars of a round with their workers, and the faults that hit them.

Faults come from several threads. One that lasts holds the lock of the pod that it hits; another fault for the same pod
is skipped meanwhile, and the event log says so.
"""

import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos.brokers import RoundTopic
from tests.chaos.clocks import Clock
from tests.chaos.event_log import EventLog
from tests.chaos.plan import Leases, Plan
from tests.chaos.proxy_process import ProxyProcess
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar
from tests.e2e.load.processes import SUBSCRIPTION, start_worker
from tests.servers.process import free_ports

#: sidecars at a time
_MAX_SIDECARS = 3
#: seconds that a sidecar gets to drain
_DRAIN_DEADLINE = 3
#: the factor by which a worker keeps overdue batches longer than their lease
_OVERRUN = 1.5
#: seconds that a rebalance may take, and between checks whether a sidecar has logged it
_SHARE_TIMEOUT, _LOG_INTERVAL = 20.0, 0.002
#: seconds that a sidecar may take to stop; the broker may be away
_STOP_TIMEOUT = 45.0


class Worker:
    """One worker process."""

    def __init__(self, pod: "Pod", way: str, journal: Path, leases: Leases) -> None:
        self.pod = pod
        self.way = way
        self.who = f"worker {way} of {pod.who}"
        self.journal = journal
        self.process = start_worker(
            way,
            pod.target,
            journal,
            overdue=leases.seconds * _OVERRUN,
            lease=leases.seconds if leases.asked else 0.0,
            log=pod.sidecar.folder / f"{journal.name}.log",
        )


class Pod:
    """A sidecar, over its restarts, with its workers."""

    def __init__(self, number: int, folder: Path, socket: Path, plan: Plan, topic: RoundTopic, *, jumps: bool) -> None:
        self.who = f"sidecar {number}"
        self.ways = plan.workers[number % len(plan.workers)]
        self.workers: list[Worker] = []
        self.gone = False
        #: held by a fault that lasts
        self.busy = threading.Lock()
        folder.mkdir()
        self.clock = Clock(folder / "clock") if jumps else None
        self.proxy: ProxyProcess | None = None
        listen = {}
        if plan.tcp:
            address = f"127.0.0.1:{free_ports(1)[0]}"
            listen = {"tcp": address}
            self.proxy = ProxyProcess(address)
        subscription = {**SUBSCRIPTION, "topics": [topic.name], "group": topic.group, "order": plan.order}
        if plan.leases.seconds and not plan.leases.asked:
            subscription["lease"] = dict.fromkeys(("default", "max"), f"{plan.leases.seconds}s")
        self.sidecar = Sidecar(
            folder,
            subscriptions={"orders": {**subscription, "broker": plan.broker.value}},
            brokers={plan.broker.value: topic.broker_settings(self.who)},
            drain={"deadline": f"{_DRAIN_DEADLINE}s"},
            socket=socket,
            listen=listen,
            environ=self.clock.environment if self.clock is not None else None,
        )

    @property
    def target(self) -> str:
        """The address for its workers."""
        return self.proxy.address if self.proxy is not None else self.sidecar.target


class Sidecars:
    def __init__(self, plan: Plan, topic: RoundTopic, folder: Path, event_log: EventLog, *, jumps: bool) -> None:
        self.pods: list[Pod] = []
        self._plan = plan
        self._topic = topic
        self._folder = folder
        #: the path of a socket may have 107 bytes, and folders of rounds may have longer ones
        self._sockets = tempfile.TemporaryDirectory(prefix="offramp-chaos-")
        self._event_log = event_log
        self._jumps = jumps
        self._journals = 0
        self._lock = threading.RLock()
        #: processes that the harness has told to end
        self._ordered: set[int] = set()
        self._over = False

    @property
    def here(self) -> list[Pod]:
        """Those that have not left, oldest first."""
        return [pod for pod in self.pods if not pod.gone]

    # Start

    def add(self) -> Pod | None:
        """One more sidecar with its workers, unless there are many."""
        with self._lock:
            if len(self.here) >= _MAX_SIDECARS:
                return None
            number = len(self.pods)
            socket = Path(self._sockets.name) / f"s{number}.sock"
            pod = Pod(number, self._folder / f"s{number}", socket, self._plan, self._topic, jumps=self._jumps)
            self.pods.append(pod)
            self._start_sidecar(pod)
            for way in pod.ways:
                self._start_worker(pod, way)
            return pod

    def _start_sidecar(self, pod: Pod) -> None:
        pod.sidecar.launch()
        self._event_log.note("started", pod.who, pod.sidecar.pid)

    def _start_worker(self, pod: Pod, way: str) -> None:
        self._journals += 1
        worker = Worker(pod, way, self._folder / f"journal-{self._journals}", self._plan.leases)
        pod.workers.append(worker)
        self._event_log.note("started", worker.who, worker.process.pid, journal=worker.journal.name)

    # Supervision

    def replace_ended(self) -> None:
        """Replace workers that ended, and restart sidecars that ended by themselves."""
        with self._lock:
            if self._over:
                return
            for pod in self.here:
                for worker in [*pod.workers]:
                    if worker.process.poll() is not None:
                        self._worker_ended(worker)
                        self._start_worker(pod, worker.way)
                if pod.sidecar.process.poll() is not None and pod.busy.acquire(blocking=False):
                    # No fault did that.
                    self._ended(pod.who, pod.sidecar.process)
                    self._start_sidecar(pod)
                    pod.busy.release()

    def _worker_ended(self, worker: Worker) -> None:
        worker.pod.workers.remove(worker)
        if worker.process.returncode == -signal.SIGKILL and worker.process.pid not in self._ordered:
            # A record that kills its worker sends SIGKILL.
            self._event_log.note("killed", worker.who, worker.process.pid, by="itself")
        self._ended(worker.who, worker.process)

    def _ended(self, who: str, process: "subprocess.Popen[bytes]") -> None:
        self._event_log.note("ended", who, process.pid, code=process.returncode)

    # Faults

    def kill_sidecar(self, whom: int, seconds: float) -> None:
        def kill(pod: Pod) -> None:
            self._order("killed", pod.who, pod.sidecar.pid)
            pod.sidecar.kill()
            self._ended(pod.who, pod.sidecar.process)
            time.sleep(seconds)
            self._start_sidecar(pod)

        self._to(whom, kill)

    def stop_sidecar(self, whom: int, seconds: float) -> None:
        def stop(pod: Pod) -> None:
            self._stop(pod)
            time.sleep(seconds)
            self._start_sidecar(pod)

        self._to(whom, stop)

    def freeze_sidecar(self, whom: int, seconds: float) -> None:
        self._to(whom, lambda pod: self._freeze(pod.who, pod.sidecar.process, seconds))

    def freeze_when_told(self, message: str, whom: int, seconds: float) -> None:
        """Cause a rebalance, and freeze the first sidecar that then logs this message."""
        logs = {pod: pod.sidecar.log_size for pod in self.here}
        if self.add() is None:
            self.leave(whom)
            self.add()
        ends = time.monotonic() + _SHARE_TIMEOUT
        while time.monotonic() < ends:
            for pod in self.here:
                if message in pod.sidecar.log_since(logs.get(pod, 0)) and pod.busy.acquire(blocking=False):
                    try:
                        if pod.sidecar.process.poll() is None:
                            self._freeze(pod.who, pod.sidecar.process, seconds)
                    finally:
                        pod.busy.release()
                    return
            time.sleep(_LOG_INTERVAL)
        self._event_log.note("left out", why=f"no sidecar said that {message}")

    def leave(self, whom: int) -> None:
        """Stop a pod for good: its sidecar and its workers."""

        def leave(pod: Pod) -> None:
            with self._lock:
                if len(self.here) < 2:
                    self._event_log.note("left out", pod.who, why="it is the last")
                    return
                pod.gone = True
            self._stop(pod)
            self._stop_workers(pod)

        self._to(whom, leave)

    def jump_clock(self, whom: int, seconds: float) -> None:
        pod = self.here[whom % len(self.here)]
        assert pod.clock is not None, "its clock cannot jump"
        pod.clock.jump(seconds)
        self._event_log.note("jumped", pod.who, pod.sidecar.pid, seconds=seconds)

    def kill_worker(self, whom: int) -> None:
        worker = self._worker(whom)
        self._order("killed", worker.who, worker.process.pid)
        worker.process.kill()

    def stop_worker(self, whom: int) -> None:
        worker = self._worker(whom)
        self._order("told to stop", worker.who, worker.process.pid)
        worker.process.terminate()

    def freeze_worker(self, whom: int, seconds: float) -> None:
        worker = self._worker(whom)
        self._freeze(worker.who, worker.process, seconds)

    def proxy(self, whom: int) -> ProxyProcess:
        """The proxy between a sidecar and its workers."""
        found = self.here[whom % len(self.here)].proxy
        assert found is not None, "they do not talk over TCP"
        return found

    def _to(self, whom: int, do: Callable[[Pod], None]) -> None:
        pod = self.here[whom % len(self.here)]
        if not pod.busy.acquire(blocking=False):
            self._event_log.note("left out", pod.who, why="something is done to it already")
            return
        try:
            if pod.sidecar.process.poll() is None:
                do(pod)
        finally:
            pod.busy.release()

    def _worker(self, whom: int) -> Worker:
        with self._lock:
            workers = [worker for pod in self.here for worker in pod.workers]
            return workers[whom % len(workers)]

    def _freeze(self, who: str, process: "subprocess.Popen[bytes]", seconds: float) -> None:
        self._event_log.note("frozen", who, process.pid)
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)
        self._event_log.note("thawed", who, process.pid)

    def _order(self, word: str, who: str, pid: int) -> None:
        self._ordered.add(pid)
        self._event_log.note(word, who, pid)

    # Stop

    def stop(self) -> None:
        """Stop each sidecar, then its workers."""
        self._over = True
        for pod in self.here:
            self._stop(pod)
            self._stop_workers(pod)

    def kill(self) -> None:
        """Kill what is left."""
        self._over = True
        for pod in self.pods:
            for worker in pod.workers:
                worker.process.kill()
                worker.process.wait()
            if pod.sidecar.process.poll() is None:
                pod.sidecar.kill()
            if pod.proxy is not None:
                pod.proxy.close()
        self._sockets.cleanup()

    def _stop(self, pod: Pod) -> None:
        self._order("told to stop", pod.who, pod.sidecar.pid)
        pod.sidecar.process.terminate()
        try:
            code = pod.sidecar.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._event_log.complain(f"{pod.who} did not stop within {_STOP_TIMEOUT:g} s of SIGTERM")
            pod.sidecar.kill()
        else:
            was_ready = any(event["message"] == "ready" for event in pod.sidecar.events())
            # A sidecar that is still starting has nothing to drain.
            if code != 0 and (was_ready or code != -signal.SIGTERM):
                self._event_log.complain(f"{pod.who} ended with {code} after SIGTERM")
        self._ended(pod.who, pod.sidecar.process)

    def _stop_workers(self, pod: Pod) -> None:
        with self._lock:
            for worker in pod.workers:
                self._order("told to stop", worker.who, worker.process.pid)
                worker.process.terminate()
            for worker in [*pod.workers]:
                try:
                    worker.process.wait(WAIT_TIMEOUT)
                except subprocess.TimeoutExpired:
                    self._event_log.complain(f"{worker.who} did not stop within {WAIT_TIMEOUT:g} s of SIGTERM")
                    worker.process.kill()
                    worker.process.wait()
                self._worker_ended(worker)
