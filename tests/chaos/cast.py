"""The sidecars of a round with their workers, and what is done to them.

Faults come from several threads. One that takes its time holds the post that it is done to; another that would do
something to the same post meanwhile is left out, and the diary says so.
"""

import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos.clocks import Clock
from tests.chaos.diary import Diary
from tests.chaos.line import Line
from tests.chaos.plan import Leases, Plan
from tests.chaos.stages import Scene
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar
from tests.e2e.load.crew import SUBSCRIPTION, hire
from tests.servers.process import free_ports

#: sidecars at a time
_MOST = 3
#: seconds that a sidecar gets to drain
_DRAIN = 3
#: how much longer than its lease a worker keeps what is overdue
_OVERRUN = 1.5
#: seconds within which a sidecar that was told to stop is gone, with a broker that may be away
_LEAVES = 45.0


class Worker:
    """One worker process."""

    def __init__(self, post: "Post", way: str, journal: Path, leases: Leases) -> None:
        self.post = post
        self.way = way
        self.who = f"worker {way} of {post.who}"
        self.journal = journal
        self.process = hire(
            way,
            post.target,
            journal,
            overdue=leases.seconds * _OVERRUN,
            lease=leases.seconds if leases.asked else 0.0,
            log=post.sidecar.folder / f"{journal.name}.log",
        )


class Post:
    """Where a sidecar runs, one process after the other, with its workers."""

    def __init__(self, number: int, folder: Path, socket: Path, plan: Plan, scene: Scene, *, jumps: bool) -> None:
        self.who = f"sidecar {number}"
        self.ways = plan.crews[number % len(plan.crews)]
        self.workers: list[Worker] = []
        self.gone = False
        #: held by a fault that takes its time
        self.busy = threading.Lock()
        folder.mkdir()
        self.clock = Clock(folder / "clock") if jumps else None
        self.line: Line | None = None
        listen = {}
        if plan.tcp:
            address = f"127.0.0.1:{free_ports(1)[0]}"
            listen = {"tcp": address}
            self.line = Line(address)
        subscription = {**SUBSCRIPTION, "topics": [scene.topic], "group": scene.group, "order": plan.order}
        if plan.leases.seconds and not plan.leases.asked:
            subscription["lease"] = dict.fromkeys(("default", "max"), f"{plan.leases.seconds}s")
        self.sidecar = Sidecar(
            folder,
            subscriptions={"orders": {**subscription, "broker": plan.broker.value}},
            brokers={plan.broker.value: scene.broker_settings},
            drain={"deadline": f"{_DRAIN}s"},
            socket=socket,
            listen=listen,
            environ=self.clock.environment if self.clock is not None else None,
        )

    @property
    def target(self) -> str:
        """For its workers."""
        return self.line.address if self.line is not None else self.sidecar.target


class Cast:
    def __init__(self, plan: Plan, scene: Scene, folder: Path, diary: Diary, *, jumps: bool) -> None:
        self.posts: list[Post] = []
        self._plan = plan
        self._scene = scene
        self._folder = folder
        #: the path of a socket may be 107 bytes long: not every folder that a round may be played in is that short
        self._sockets = tempfile.TemporaryDirectory(prefix="offramp-chaos-")
        self._diary = diary
        self._jumps = jumps
        self._journals = 0
        self._lock = threading.RLock()
        #: processes whose end is to be looked for and written down, and whether it was ours
        self._ordered: set[int] = set()
        self._over = False

    @property
    def here(self) -> list[Post]:
        """In the order in which they came."""
        return [post for post in self.posts if not post.gone]

    # Coming

    def add(self) -> Post | None:
        """One more sidecar with its workers, unless there are many."""
        with self._lock:
            if len(self.here) >= _MOST:
                return None
            number = len(self.posts)
            socket = Path(self._sockets.name) / f"s{number}.sock"
            post = Post(number, self._folder / f"s{number}", socket, self._plan, self._scene, jumps=self._jumps)
            self.posts.append(post)
            self._launch(post)
            for way in post.ways:
                self._hire(post, way)
            return post

    def _launch(self, post: Post) -> None:
        post.sidecar.launch()
        self._diary.note("started", post.who, post.sidecar.pid)

    def _hire(self, post: Post, way: str) -> None:
        self._journals += 1
        worker = Worker(post, way, self._folder / f"journal-{self._journals}", self._plan.leases)
        post.workers.append(worker)
        self._diary.note("started", worker.who, worker.process.pid, journal=worker.journal.name)

    # Being looked after

    def tend(self) -> None:
        """Replace workers that ended, and notice sidecars that did without having been told to."""
        with self._lock:
            if self._over:
                return
            for post in self.here:
                for worker in [*post.workers]:
                    if worker.process.poll() is not None:
                        self._bury(worker)
                        self._hire(post, worker.way)
                if post.sidecar.process.poll() is not None and post.busy.acquire(blocking=False):
                    # Nobody did that.
                    self._ended(post.who, post.sidecar.process)
                    self._launch(post)
                    post.busy.release()

    def _bury(self, worker: Worker) -> None:
        worker.post.workers.remove(worker)
        if worker.process.returncode == -signal.SIGKILL and worker.process.pid not in self._ordered:
            # A record that kills its worker does it this way.
            self._diary.note("killed", worker.who, worker.process.pid, by="itself")
        self._ended(worker.who, worker.process)

    def _ended(self, who: str, process: "subprocess.Popen[bytes]") -> None:
        self._diary.note("ended", who, process.pid, code=process.returncode)

    # Faults

    def kill_sidecar(self, whom: int, seconds: float) -> None:
        def kill(post: Post) -> None:
            self._order("killed", post.who, post.sidecar.pid)
            post.sidecar.kill()
            self._ended(post.who, post.sidecar.process)
            time.sleep(seconds)
            self._launch(post)

        self._to(whom, kill)

    def stop_sidecar(self, whom: int, seconds: float) -> None:
        def stop(post: Post) -> None:
            self._stop(post)
            time.sleep(seconds)
            self._launch(post)

        self._to(whom, stop)

    def freeze_sidecar(self, whom: int, seconds: float) -> None:
        self._to(whom, lambda post: self._freeze(post.who, post.sidecar.process, seconds))

    def leave(self, whom: int) -> None:
        """A pod goes: its sidecar and its workers."""

        def leave(post: Post) -> None:
            with self._lock:
                if len(self.here) < 2:
                    self._diary.note("left out", post.who, why="it is the last")
                    return
                post.gone = True
            self._stop(post)
            self._dismiss(post)

        self._to(whom, leave)

    def jump_clock(self, whom: int, seconds: float) -> None:
        post = self.here[whom % len(self.here)]
        assert post.clock is not None, "its clock cannot jump"
        post.clock.jump(seconds)
        self._diary.note("jumped", post.who, post.sidecar.pid, seconds=seconds)

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

    def line(self, whom: int) -> Line:
        """Between a sidecar and its workers."""
        found = self.here[whom % len(self.here)].line
        assert found is not None, "they do not talk over TCP"
        return found

    def _to(self, whom: int, do: Callable[[Post], None]) -> None:
        post = self.here[whom % len(self.here)]
        if not post.busy.acquire(blocking=False):
            self._diary.note("left out", post.who, why="something is done to it already")
            return
        try:
            if post.sidecar.process.poll() is None:
                do(post)
        finally:
            post.busy.release()

    def _worker(self, whom: int) -> Worker:
        with self._lock:
            workers = [worker for post in self.here for worker in post.workers]
            return workers[whom % len(workers)]

    def _freeze(self, who: str, process: "subprocess.Popen[bytes]", seconds: float) -> None:
        self._diary.note("frozen", who, process.pid)
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)
        self._diary.note("thawed", who, process.pid)

    def _order(self, word: str, who: str, pid: int) -> None:
        self._ordered.add(pid)
        self._diary.note(word, who, pid)

    # Going

    def stop(self) -> None:
        """In order: all sidecars, then all workers."""
        self._over = True
        for post in self.here:
            self._stop(post)
            self._dismiss(post)

    def kill(self) -> None:
        """Whatever is left."""
        self._over = True
        for post in self.posts:
            for worker in post.workers:
                worker.process.kill()
                worker.process.wait()
            if post.sidecar.process.poll() is None:
                post.sidecar.kill()
            if post.line is not None:
                post.line.close()
        self._sockets.cleanup()

    def _stop(self, post: Post) -> None:
        self._order("told to stop", post.who, post.sidecar.pid)
        post.sidecar.process.terminate()
        try:
            code = post.sidecar.wait(_LEAVES)
        except subprocess.TimeoutExpired:
            self._diary.complain(f"{post.who} did not stop within {_LEAVES:g} s of SIGTERM")
            post.sidecar.kill()
        else:
            was_ready = any(event["message"] == "ready" for event in post.sidecar.events())
            # One that was only being loaded has nothing to end in order.
            if code != 0 and (was_ready or code != -signal.SIGTERM):
                self._diary.complain(f"{post.who} ended with {code} after SIGTERM")
        self._ended(post.who, post.sidecar.process)

    def _dismiss(self, post: Post) -> None:
        with self._lock:
            for worker in post.workers:
                self._order("told to stop", worker.who, worker.process.pid)
                worker.process.terminate()
            for worker in [*post.workers]:
                try:
                    worker.process.wait(WAIT_TIMEOUT)
                except subprocess.TimeoutExpired:
                    self._diary.complain(f"{worker.who} did not stop within {WAIT_TIMEOUT:g} s of SIGTERM")
                    worker.process.kill()
                    worker.process.wait()
                self._bury(worker)
