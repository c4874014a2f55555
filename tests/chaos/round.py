"""Plays a plan: starts the sidecars, injects the faults, waits until all is settled, and lets the checker decide."""

import json
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos.brokers import Broker, RoundTopic
from tests.chaos.checker import checker, history
from tests.chaos.checker.checker import Verdict
from tests.chaos.checker.history import Commit
from tests.chaos.event_log import EventLog
from tests.chaos.faults import Fault, FaultKind
from tests.chaos.plan import Plan
from tests.chaos.sidecars import Sidecars

#: seconds within which everything must be settled once the faults are over
_SETTLE_TIMEOUT = 240.0
#: seconds until the first record must have come to a worker
_FIRST_RECORD_TIMEOUT = 60.0
#: seconds between reads of the commits
_COMMIT_POLL_INTERVAL = 1.0
#: seconds in which a single record must be settled, before another is published
_PROBE_INTERVAL = 3.0
#: seconds that a publisher may need until everything is confirmed
_PUBLISHER_TIMEOUT = 120.0

#: reports progress to people
Tell = Callable[[str], None]


def play(plan: Plan, broker: Broker, folder: Path, tell: Tell = lambda _: None) -> Verdict:
    """Play a round. Its history is in `folder` afterwards."""
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(plan.to_json())
    event_log = EventLog(folder / "events")
    topic = broker.new_topic(plan, folder)
    keep: Path | None = folder
    try:
        Round(plan, broker, topic, folder, event_log, tell).play()
        verdict = checker.check(history.read(folder))
        keep = None if verdict.passed else folder
    finally:
        topic.close(keep)
        event_log.close()
    (folder / "verdict.json").write_text(json.dumps(vars(verdict), indent=1))
    return verdict


class Round:
    def __init__(
        self, plan: Plan, broker: Broker, topic: RoundTopic, folder: Path, event_log: EventLog, tell: Tell
    ) -> None:
        self._plan = plan
        self._broker = broker
        self._topic = topic
        self._folder = folder
        self._event_log = event_log
        self._tell = tell
        jumps = any(fault.kind is FaultKind.JUMP_CLOCK for fault in plan.faults)
        self._sidecars = Sidecars(plan, topic, folder, event_log, jumps=jumps)
        self._commits: list[Commit] = []
        self._over = threading.Event()

    def play(self) -> None:
        looking = threading.Thread(target=self._look)
        try:
            for _ in self._plan.workers:
                self._sidecars.add()
            with _Publisher(self._plan, self._topic, self._sidecars, self._folder, self._event_log) as publisher:
                looking.start()
                self._until(self._begun, _FIRST_RECORD_TIMEOUT, "no record came to a worker")
                self._do_faults(publisher)
                self._tell("settling")
                publisher.answer()
                self._settle(publisher)
            self._tell("stopping")
            self._sidecars.stop()
        finally:
            self._over.set()
            self._sidecars.kill()
            self._restore_broker()
            if looking.ident is not None:
                looking.join()
        self._tell("reading what the broker has")
        snapshot = self._topic.snapshot()
        snapshot.commits[:0] = self._commits
        (self._folder / "broker.json").write_text(snapshot.to_json())
        self._read_logs()

    def _begun(self) -> bool:
        return any(path.stat().st_size for path in self._folder.glob("journal-*"))

    # Faults

    def _do_faults(self, publisher: "_Publisher") -> None:
        """Inject the faults. The load ends on time, however long a fault takes: when the publisher says so."""
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
            self._sidecars.replace_ended()
            time.sleep(0.05)

    def _do(self, fault: Fault) -> None:
        self._event_log.note("fault", kind=fault.kind, whom=fault.whom, lasts=fault.lasts)
        try:
            self._doing(fault)
        except Exception as error:
            self._event_log.complain(f"{fault.kind} could not be done: {error!r}")

    def _doing(self, fault: Fault) -> None:
        sidecars, whom, lasts = self._sidecars, fault.whom, fault.lasts
        match fault.kind:
            case FaultKind.KILL_SIDECAR:
                sidecars.kill_sidecar(whom, lasts)
            case FaultKind.STOP_SIDECAR:
                sidecars.stop_sidecar(whom, lasts)
            case FaultKind.FREEZE_SIDECAR:
                sidecars.freeze_sidecar(whom, lasts)
            case FaultKind.FREEZE_ASSIGNED:
                sidecars.freeze_when_told("lanes were assigned", whom, lasts)
            case FaultKind.FREEZE_LEAVING:
                sidecars.freeze_when_told("lanes move to another sidecar", whom, lasts)
            case FaultKind.JOIN:
                sidecars.add()
            case FaultKind.LEAVE:
                sidecars.leave(whom)
            case FaultKind.KILL_WORKER:
                sidecars.kill_worker(whom)
            case FaultKind.STOP_WORKER:
                sidecars.stop_worker(whom)
            case FaultKind.FREEZE_WORKER:
                sidecars.freeze_worker(whom, lasts)
            case FaultKind.JUMP_CLOCK:
                sidecars.jump_clock(whom, lasts)
            case FaultKind.FILL_DISK:
                self._topic.fill_disk()
                self._event_log.note("full", "disk")
                time.sleep(lasts)
                self._topic.free_disk()
                self._event_log.note("free", "disk")
            case FaultKind.KILL_BROKER | FaultKind.STOP_BROKER | FaultKind.FREEZE_BROKER:
                self._do_to_server(fault)
            case (
                FaultKind.CUT_BROKER
                | FaultKind.DELAY_BROKER
                | FaultKind.HOLD_BROKER
                | FaultKind.CUT_APP
                | FaultKind.DELAY_APP
                | FaultKind.HOLD_APP
            ):
                self._do_to_proxy(fault)

    def _do_to_server(self, fault: Fault) -> None:
        server = self._broker.server
        assert server is not None
        pid = server.pid
        match fault.kind:
            case FaultKind.FREEZE_BROKER:
                server.freeze()
                self._event_log.note("frozen", "broker", pid)
                time.sleep(fault.lasts)
                server.thaw()
                self._event_log.note("thawed", "broker", pid)
                return
            case FaultKind.KILL_BROKER:
                self._event_log.note("broker killed", "broker", pid)
                server.kill()
            case FaultKind.STOP_BROKER:
                self._event_log.note("broker told to stop", "broker", pid)
                server.stop()
        time.sleep(fault.lasts)
        server.start()
        self._event_log.note("broker is back", "broker", server.pid)

    def _do_to_proxy(self, fault: Fault) -> None:
        of_app = fault.kind in (FaultKind.CUT_APP, FaultKind.DELAY_APP, FaultKind.HOLD_APP)
        proxy = self._sidecars.proxy(fault.whom) if of_app else self._broker.proxy
        assert proxy is not None
        match fault.kind:
            case FaultKind.CUT_BROKER | FaultKind.CUT_APP:
                proxy.cut()
                return
            case FaultKind.DELAY_BROKER | FaultKind.DELAY_APP:
                proxy.delay(0.1)
            case _:
                proxy.hold()
        time.sleep(fault.lasts)
        proxy.flow()
        self._event_log.note("flows", pid=proxy.pid)

    def _restore_broker(self) -> None:
        """Restore the broker for the next round, however this one ended."""
        if self._broker.proxy is not None:
            self._broker.proxy.flow()
        server = self._broker.server
        if server is not None:
            server.thaw()
            if not server.is_running:
                server.start()

    # The end

    def _settle(self, publisher: "_Publisher") -> None:
        ends = time.monotonic() + _SETTLE_TIMEOUT
        while time.monotonic() < ends:
            # Good records go on: failures alone would be an outage.
            publisher.tell("one")
            publisher.answer()
            soon = time.monotonic() + _PROBE_INTERVAL
            while time.monotonic() < soon:
                self._sidecars.replace_ended()
                if self._topic.is_done():
                    return
                time.sleep(0.1)
        self._event_log.complain(f"not everything was settled within {_SETTLE_TIMEOUT:g} s after the load")

    def _until(self, seen: Callable[[], bool], timeout: float, complaint: str) -> None:
        ends = time.monotonic() + timeout
        while not seen():
            if time.monotonic() > ends:
                self._event_log.complain(f"{complaint} within {timeout:g} s")
                return
            self._sidecars.replace_ended()
            time.sleep(0.05)

    def _look(self) -> None:
        """Reads the commits at intervals, except while the broker is away."""
        while not self._over.wait(_COMMIT_POLL_INTERVAL):
            try:
                self._commits.extend(self._topic.commits())
            except OSError as error:
                self._event_log.note("not seen", why=str(error))

    def _read_logs(self) -> None:
        """An unexpected error in the log of a sidecar is a problem, even without consequences."""
        for log in sorted(self._folder.glob("s*/*.log")):
            text = log.read_text(errors="replace")
            if (at := text.find("Traceback (most recent call last)")) >= 0:
                line = text[text.rfind("\n", 0, at) + 1 : text.find("\n", at)]
                self._event_log.complain(f"{log.parent.name} logged a bug: {line[:2000]}")


class _Publisher:
    """The publisher process. No fault ends it."""

    def __init__(self, plan: Plan, topic: RoundTopic, sidecars: Sidecars, folder: Path, event_log: EventLog) -> None:
        address = topic.publisher_address(str(sidecars.pods[0].sidecar.socket))
        shares = [f"{kind}={share}" for kind, share in plan.shares.items()]
        seed = f"{plan.seed} {plan.number}"
        told = [plan.broker, address, topic.name, str(folder / "published-0"), seed, str(plan.pace), *shares]
        self._event_log = event_log
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.publisher", *told],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        event_log.note("started", "publisher", self._process.pid)

    def __enter__(self) -> "_Publisher":
        return self

    def __exit__(self, *_: object) -> None:
        self._event_log.note("told to stop", "publisher", self._process.pid)
        self._process.kill()
        self._process.communicate()
        self._event_log.note("ended", "publisher", self._process.pid, code=self._process.returncode)

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")

    def answer(self) -> None:
        """Returns when it has done what it was told. Raises `TimeoutError`."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _PUBLISHER_TIMEOUT)
        if not ready or not self._process.stdout.readline():
            raise TimeoutError(f"the publisher does not respond within {_PUBLISHER_TIMEOUT:g} s")
