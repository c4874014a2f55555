"""The app, its answers or the sidecar are lost: no record is, and no innocent one pays."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from offramp.v1 import publish_pb2, publish_pb2_grpc
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, Worker, eventually
from tests.e2e.push.harness import App, calls, dead, pushing, running, settled, texts

ONE = 0


@contextmanager
def restarted(app: App) -> Iterator[None]:
    """Whenever the app dies, it is started again, as by a kubelet."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            if not app.alive:
                app.start()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_record_that_kills_the_app_is_found_and_no_other_is_blamed(tmp_path: Path) -> None:
    with running(tmp_path, batch={"records": 4}) as (app, sidecar), restarted(app):
        app.answer(killer={"die": True}, any={"sleep": 0.02})
        sidecar.publish("orders", texts(*range(10), "killer", *range(10, 20)), lane=ONE)
        settled(sidecar, 21)
        assert dead(sidecar, 1) == [("killer", "WORKER_DIED")]
        assert set(app.done()) == set(map(str, range(20)))
        deaths = [call for call in app.calls() if "killer" in call]
        assert deaths[-1] == ["killer"]
        # The last time, nothing else was under way in the app that died.
        last = [event["values"] for event in app.events() if event["pid"] == app.last_death("killer")]
        ends = [event["values"] for event in app.events("end") if event["pid"] == app.last_death("killer")]
        assert [values for values in last if values not in ends] == [["killer"]]


def test_killing_the_sidecar_loses_nothing_and_what_may_have_been_done_is_flagged(tmp_path: Path) -> None:
    with running(tmp_path, {"concurrency": 4}, batch={"records": 2}) as (app, sidecar):
        app.answer(any={"sleep": 0.01})
        for round_ in range(2):
            sidecar.publish("orders", texts(*(f"{round_}-{number}" for number in range(40))))
            eventually(lambda round_=round_: any(v.startswith(f"{round_}-") for v in app.done()), "the load goes on")
            sidecar.restart()
        settled(sidecar, 80)
        assert {record["value"] for record in app.records()} >= {f"{r}-{n}" for r in range(2) for n in range(40)}
        seen: set[str] = set()
        for record in app.records():
            assert record["value"] not in seen or record["possibly_processed"], record
            seen.add(record["value"])
        assert sidecar.status().counters.dead_lettered == 0


def test_killing_the_app_loses_nothing(tmp_path: Path) -> None:
    with running(tmp_path, {"concurrency": 4}, batch={"records": 2}) as (app, sidecar), restarted(app):
        app.answer(any={"sleep": 0.01})
        sidecar.publish("orders", texts(*range(100)))
        # Twice: a record that is there all three times is taken for the one that kills the app.
        for part in (20, 50):
            eventually(lambda part=part: len(app.done()) > part, "the load goes on")
            app.kill()
        settled(sidecar, 100)
        assert set(app.done()) == set(map(str, range(100)))
        assert sidecar.status().counters.dead_lettered == 0


def test_a_drain_waits_for_the_calls_under_way_and_commits_their_acks(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with running(tmp_path, batch={"records": 1}) as (app, sidecar):
        app.answer(any={"until": str(go)})
        sidecar.publish("orders", texts("a"), lane=ONE)
        eventually(app.events, "the call is under way")
        sidecar.signal(signal.SIGTERM)
        sidecar.event("stopping")
        go.touch()
        assert sidecar.wait() == 0
        sidecar.start()
        sidecar.publish("orders", texts("b"), lane=ONE)
        settled(sidecar, 2)
        assert app.calls() == [["a"], ["b"]]


def test_a_drain_does_not_wait_for_a_call_beyond_its_deadline(tmp_path: Path) -> None:
    with App(tmp_path) as app:
        sidecar = pushing(tmp_path, app.url)
        sidecar.settings["drain"] = {"deadline": "200ms"}
        with sidecar:
            app.answer(any={"sleep": 60})
            sidecar.publish("orders", texts("a"), lane=ONE)
            eventually(app.events, "the call is under way")
            assert sidecar.terminate() == 0
            app.answer()
            sidecar.start()
            settled(sidecar, 1)
            assert [record["possibly_processed"] for record in app.records()] == [False, True]


def test_a_call_that_timed_out_keeps_its_slot_and_its_record_for_settle_after(tmp_path: Path) -> None:
    push = {"timeout": "200ms", "settle_after": "500ms", "concurrency": 1}
    with running(tmp_path, push, batch={"records": 1}) as (app, sidecar):
        app.answer(slow={"sleep": 0.6})
        sidecar.publish("orders", texts("slow", "next"), lane=ONE)
        eventually(lambda: len(app.calls()) >= 2, "there is another call")
        app.answer()
        settled(sidecar, 2)
        first, second = app.events()[:2]
        assert second["at"] - first["at"] > 0.69, "its slot was taken"
        flags = [record["possibly_processed"] for record in app.records() if record["value"] == "slow"]
        assert flags == [False, True]
        assert calls(sidecar, "timeout") == 1


def test_with_order_key_a_call_that_timed_out_holds_up_its_key_and_no_other(tmp_path: Path) -> None:
    push = {"timeout": "200ms", "settle_after": "400ms", "concurrency": 4}
    with running(tmp_path, push, order="key", batch={"records": 1}) as (app, sidecar):
        app.answer(a1={"sleep": 0.5})
        keyed(sidecar, ("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2"))
        eventually(lambda: {"b1", "b2"} <= set(app.done()), "the other key goes on")
        assert ["a2"] not in app.calls()
        eventually(lambda: app.calls().count(["a1"]) == 2, "it is tried again")
        app.answer()
        settled(sidecar, 4)
        begun = [event for event in app.events() if event["values"] == ["a1"]]
        assert begun[1]["at"] - begun[0]["at"] > 0.59
        assert app.calls().index(["a2"]) > max(at for at, call in enumerate(app.calls()) if call == ["a1"])


def test_records_of_a_key_go_in_order_however_many_calls_there_are(tmp_path: Path) -> None:
    with running(tmp_path, {"concurrency": 8}, order="key", batch={"records": 3}) as (app, sidecar):
        app.answer(k2_5={"status": 500}, any={"sleep": 0.005})
        keyed(sidecar, *((f"k{number % 5}", f"k{number % 5}_{number // 5}") for number in range(100)))
        settled(sidecar, 100)
        assert dead(sidecar, 1) == [("k2_5", "HTTP 500")]
        for key in range(5):
            done = [int(value.partition("_")[2]) for value in app.done() if value.startswith(f"k{key}_")]
            first = list(dict.fromkeys(done))
            assert all(a < b for a, b in pairwise(first)), f"k{key}: {first}"


def test_there_are_never_more_calls_than_allowed_and_they_run_at_once(tmp_path: Path) -> None:
    with running(tmp_path, {"concurrency": 3}, batch={"records": 1}) as (app, sidecar):
        app.answer(any={"sleep": 0.02})
        sidecar.publish("orders", texts(*range(30)))
        settled(sidecar, 30)
        events = sorted(app.events() + app.events("end"), key=lambda event: event["at"])
        running_, most = 0, 0
        for event in events:
            running_ += 1 if event["event"] == "begin" else -1
            most = max(most, running_)
        assert most == 3


def test_workers_and_calls_share_a_subscription(tmp_path: Path) -> None:
    with running(tmp_path, {"concurrency": 1}, batch={"records": 1}) as (app, sidecar):
        with Worker(sidecar, "settle") as worker:
            worker.event("welcome")
            sidecar.publish("orders", texts(*range(10)), lane=ONE)
            worker.batch()
            eventually(lambda: len(app.done()) >= 5, "the app gets its share")
            worker.tell()
            eventually(lambda: sidecar.status().counters.acked >= 6, "the worker's ack counts")
        settled(sidecar, 10)
        assert len(app.done()) < 10


def keyed(sidecar: Sidecar, *records: tuple[str, str]) -> None:
    """Publish records with keys to one lane."""
    messages = [publish_pb2.Message(key=key.encode(), value=value.encode(), lane=0) for key, value in records]
    request = publish_pb2.PublishRequest(broker="local", topic="orders", messages=messages)
    with sidecar.channel() as channel:
        publish_pb2_grpc.PublishServiceStub(channel).Publish(request, timeout=WAIT_TIMEOUT)
