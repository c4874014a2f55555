"""Plays a plan: starts the cast, does the faults, waits until all is settled, and lets the checker decide."""

import json
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos import checker, history
from tests.chaos.acts import Act, Fault
from tests.chaos.cast import Cast
from tests.chaos.checker import Verdict
from tests.chaos.diary import Diary
from tests.chaos.history import Claim
from tests.chaos.plan import Plan
from tests.chaos.stages import Scene, Stage

#: seconds within which everything must be settled once the faults are over
_SETTLE_TIMEOUT = 240.0
#: seconds until the first record must have come to a worker
_FIRST_RECORD_TIMEOUT = 60.0
#: seconds between looks at how far the group is
_COMMIT_POLL_INTERVAL = 1.0
#: seconds in which a single record must be settled, before another is published
_PROBE_INTERVAL = 3.0
#: seconds that a publisher may need to get rid of what it has
_PUBLISHER_TIMEOUT = 120.0

#: told what happens, for whoever watches
Tell = Callable[[str], None]


def play(plan: Plan, stage: Stage, folder: Path, tell: Tell = lambda _: None) -> Verdict:
    """One round, in a folder of its own, which has its history afterwards."""
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(plan.to_json())
    diary = Diary(folder / "diary")
    scene = stage.scene(plan, folder)
    keep: Path | None = folder
    try:
        Round(plan, stage, scene, folder, diary, tell).play()
        verdict = checker.check(history.read(folder))
        keep = None if verdict.passed else folder
    finally:
        scene.close(keep)
        diary.close()
    (folder / "verdict.json").write_text(json.dumps(vars(verdict), indent=1))
    return verdict


class Round:
    def __init__(self, plan: Plan, stage: Stage, scene: Scene, folder: Path, diary: Diary, tell: Tell) -> None:
        self._plan = plan
        self._stage = stage
        self._scene = scene
        self._folder = folder
        self._diary = diary
        self._tell = tell
        jumps = any(fault.act is Act.JUMP_CLOCK for fault in plan.faults)
        self._cast = Cast(plan, scene, folder, diary, jumps=jumps)
        self._claims: list[Claim] = []
        self._over = threading.Event()

    def play(self) -> None:
        looking = threading.Thread(target=self._look)
        try:
            for _ in self._plan.crews:
                self._cast.add()
            with _Publisher(self._plan, self._scene, self._cast, self._folder, self._diary) as publisher:
                looking.start()
                self._until(self._begun, _FIRST_RECORD_TIMEOUT, "no record came to a worker")
                self._do_faults(publisher)
                self._tell("settling")
                publisher.answer()
                self._settle(publisher)
            self._tell("stopping")
            self._cast.stop()
        finally:
            self._over.set()
            self._cast.kill()
            self._mend()
            if looking.ident is not None:
                looking.join()
        self._tell("taking stock")
        stock = self._scene.stock()
        stock.claims[:0] = self._claims
        (self._folder / "broker.json").write_text(stock.to_json())
        self._read_logs()

    def _begun(self) -> bool:
        return any(path.stat().st_size for path in self._folder.glob("journal-*"))

    # Faults

    def _do_faults(self, publisher: "_Publisher") -> None:
        """The load ends when it was to, however long a fault takes. It is over when its publisher says so."""
        began = time.monotonic()
        loading = True
        doing: list[threading.Thread] = []
        waiting = [*self._plan.faults]
        while loading or any(one.is_alive() for one in doing):
            while waiting and time.monotonic() >= began + waiting[0].at:
                fault = waiting.pop(0)
                doing.append(threading.Thread(target=self._do, args=(fault,)))
                doing[-1].start()
            left = max(0.0, began + self._plan.seconds - time.monotonic())
            if loading and not left:
                publisher.tell("stop")
                loading = False
            self._tell(f"{len(self._plan.faults) - len(waiting)}/{len(self._plan.faults)} faults, load {left:.0f} s")
            self._cast.tend()
            time.sleep(0.05)

    def _do(self, fault: Fault) -> None:
        self._diary.note("fault", act=fault.act, whom=fault.whom, lasts=fault.lasts)
        try:
            self._doing(fault)
        except Exception as error:
            self._diary.complain(f"{fault.act} could not be done: {error!r}")

    def _doing(self, fault: Fault) -> None:
        cast, whom, lasts = self._cast, fault.whom, fault.lasts
        match fault.act:
            case Act.KILL_SIDECAR:
                cast.kill_sidecar(whom, lasts)
            case Act.STOP_SIDECAR:
                cast.stop_sidecar(whom, lasts)
            case Act.FREEZE_SIDECAR:
                cast.freeze_sidecar(whom, lasts)
            case Act.JOIN:
                cast.add()
            case Act.LEAVE:
                cast.leave(whom)
            case Act.KILL_WORKER:
                cast.kill_worker(whom)
            case Act.STOP_WORKER:
                cast.stop_worker(whom)
            case Act.FREEZE_WORKER:
                cast.freeze_worker(whom, lasts)
            case Act.JUMP_CLOCK:
                cast.jump_clock(whom, lasts)
            case Act.FILL_DISK:
                self._scene.fill_disk()
                self._diary.note("full", "disk")
                time.sleep(lasts)
                self._scene.free_disk()
                self._diary.note("free", "disk")
            case Act.KILL_BROKER | Act.STOP_BROKER | Act.FREEZE_BROKER:
                self._do_to_server(fault)
            case Act.CUT_BROKER | Act.DELAY_BROKER | Act.HOLD_BROKER | Act.CUT_APP | Act.DELAY_APP | Act.HOLD_APP:
                self._do_to_line(fault)

    def _do_to_server(self, fault: Fault) -> None:
        server = self._stage.server
        assert server is not None
        pid = server.pid
        match fault.act:
            case Act.FREEZE_BROKER:
                server.freeze()
                self._diary.note("frozen", "broker", pid)
                time.sleep(fault.lasts)
                server.thaw()
                self._diary.note("thawed", "broker", pid)
                return
            case Act.KILL_BROKER:
                self._diary.note("broker killed", "broker", pid)
                server.kill()
            case Act.STOP_BROKER:
                self._diary.note("broker told to stop", "broker", pid)
                server.stop()
        time.sleep(fault.lasts)
        server.start()
        self._diary.note("broker is back", "broker", server.pid)

    def _do_to_line(self, fault: Fault) -> None:
        of_app = fault.act in (Act.CUT_APP, Act.DELAY_APP, Act.HOLD_APP)
        line = self._cast.line(fault.whom) if of_app else self._stage.line
        assert line is not None
        match fault.act:
            case Act.CUT_BROKER | Act.CUT_APP:
                line.cut()
                return
            case Act.DELAY_BROKER | Act.DELAY_APP:
                line.delay(0.1)
            case _:
                line.hold()
        time.sleep(fault.lasts)
        line.flow()
        self._diary.note("flows", pid=line.pid)

    def _mend(self) -> None:
        """Whatever the round came to, the next one finds the broker as it should be."""
        if self._stage.line is not None:
            self._stage.line.flow()
        server = self._stage.server
        if server is not None:
            server.thaw()
            if not server.is_running:
                server.start()

    # The end

    def _settle(self, publisher: "_Publisher") -> None:
        ends = time.monotonic() + _SETTLE_TIMEOUT
        while time.monotonic() < ends:
            # Something that works goes on: failures alone would be an outage.
            publisher.tell("one")
            publisher.answer()
            soon = time.monotonic() + _PROBE_INTERVAL
            while time.monotonic() < soon:
                self._cast.tend()
                if self._scene.is_done():
                    return
                time.sleep(0.1)
        self._diary.complain(f"not everything was settled within {_SETTLE_TIMEOUT:g} s after the load")

    def _until(self, seen: Callable[[], bool], timeout: float, complaint: str) -> None:
        ends = time.monotonic() + timeout
        while not seen():
            if time.monotonic() > ends:
                self._diary.complain(f"{complaint} within {timeout:g} s")
                return
            self._cast.tend()
            time.sleep(0.05)

    def _look(self) -> None:
        """How far the group is, again and again. What a broker that is away cannot tell is left out."""
        while not self._over.wait(_COMMIT_POLL_INTERVAL):
            try:
                self._claims.extend(self._scene.claims())
            except OSError as error:
                self._diary.note("not seen", why=str(error))

    def _read_logs(self) -> None:
        """A sidecar that says that something unforeseen happened is not well, whatever came of it."""
        for log in sorted(self._folder.glob("s*/*.log")):
            text = log.read_text(errors="replace")
            if (at := text.find("Traceback (most recent call last)")) >= 0:
                line = text[text.rfind("\n", 0, at) + 1 : text.find("\n", at)]
                self._diary.complain(f"{log.parent.name} logged a bug: {line[:2000]}")


class _Publisher:
    """The publisher process. It outlives everything that is done to the broker."""

    def __init__(self, plan: Plan, scene: Scene, cast: Cast, folder: Path, diary: Diary) -> None:
        address = scene.publisher_address(str(cast.posts[0].sidecar.socket))
        shares = [f"{kind}={share}" for kind, share in plan.shares.items()]
        seed = f"{plan.seed} {plan.number}"
        told = [plan.broker, address, scene.topic, str(folder / "published-0"), seed, str(plan.pace), *shares]
        self._diary = diary
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.publisher", *told],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        diary.note("started", "publisher", self._process.pid)

    def __enter__(self) -> "_Publisher":
        return self

    def __exit__(self, *_: object) -> None:
        self._diary.note("told to stop", "publisher", self._process.pid)
        self._process.kill()
        self._process.communicate()
        self._diary.note("ended", "publisher", self._process.pid, code=self._process.returncode)

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")

    def answer(self) -> None:
        """Returns when it has done what it was told. Raises `TimeoutError`."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _PUBLISHER_TIMEOUT)
        if not ready or not self._process.stdout.readline():
            raise TimeoutError(f"the publisher does not answer within {_PUBLISHER_TIMEOUT:g} s")
