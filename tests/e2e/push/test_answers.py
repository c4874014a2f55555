"""What the app answers decides what becomes of its records."""

import contextlib
import socket
import socketserver
import threading
from pathlib import Path

from tests.e2e.harness import eventually
from tests.e2e.push.harness import App, calls, dead, free_port, pushing, running, settled, texts, trouble

#: one lane, so that what is published at once is one batch
ONE = 0


def test_a_batch_is_one_call_and_a_2xx_acks_it(tmp_path: Path) -> None:
    with running(tmp_path) as (app, sidecar):
        sidecar.publish("orders", texts(1, 2, 3), lane=ONE)
        settled(sidecar, 3)
        assert app.done() == ["1", "2", "3"]
        assert sidecar.status().counters.acked == 3
        assert sidecar.metric("offramp_push_calls_total", status="200") == len(app.calls())
        assert sidecar.metric("offramp_push_call_seconds_count") == len(app.calls())
        assert [session.name for session in sidecar.status().sessions] == [f"push to {app.socket}:/orders"]


def test_a_5xx_nacks_and_the_next_call_says_so(tmp_path: Path) -> None:
    with running(tmp_path) as (app, sidecar):
        app.answer(a={"status": 500})
        sidecar.publish("orders", texts("a"), lane=ONE)
        eventually(lambda: len(app.calls()) >= 2, "it is called again")
        app.answer()
        settled(sidecar, 1)
        attempts = [call["headers"]["offramp-attempt"] for call in app.events()]
        assert attempts == [str(number) for number in range(1, len(attempts) + 1)]
        assert {call["headers"]["offramp-possibly-processed"] for call in app.events()} == {"false"}


def test_only_the_records_that_an_answer_names_are_repeated(tmp_path: Path) -> None:
    with running(tmp_path) as (app, sidecar):
        body = '{"failures": [{"index": 1, "reason": "later"}, {"index": 2, "outcome": "reject", "reason": "no"}]}'
        app.answer(a={"body": body})
        sidecar.publish("orders", texts("a", "b", "c", "d"), lane=ONE)
        settled(sidecar, 4)
        assert app.calls() == [["a", "b", "c", "d"], ["b"]]
        assert dead(sidecar, 1) == [("c", "REJECTED: no")]


def test_poison_is_found_by_splitting_and_the_rest_is_done(tmp_path: Path) -> None:
    with running(tmp_path) as (app, sidecar):
        sidecar.publish("orders", texts("good"), lane=ONE)
        settled(sidecar, 1)
        app.answer(p={"status": 500, "body": '{"detail": "cannot"}'}, r={"status": 422})
        sidecar.publish("orders", texts(*range(5), "p", *range(5, 10), "r", *range(10, 15)), lane=ONE)
        settled(sidecar, 18)
        assert dict(dead(sidecar, 2)) == {"p": "HTTP 500: cannot", "r": "REJECTED: HTTP 422"}
        assert sorted(app.done(), key=str) == sorted(["good", *map(str, range(15))])
        with_reject = [call for call in app.calls() if "r" in call]
        assert with_reject[-1] == ["r"], "a status rejects a record alone only"
        assert with_reject.count(["r"]) == 1


def test_an_app_that_fails_for_everything_is_probed_and_loses_nothing(tmp_path: Path) -> None:
    with running(tmp_path, batch={"records": 1}) as (app, sidecar):
        app.answer(any={"status": 500})
        sidecar.publish("orders", texts(*range(20)), lane=ONE)
        trouble(sidecar, "the handler fails for everything")
        before = len(app.calls())
        eventually(lambda: len(app.calls()) > before + 5, "probes go on")
        assert sidecar.status().counters.dead_lettered == 0
        app.answer()
        settled(sidecar, 20)
        assert sorted(app.done(), key=int) == [str(number) for number in range(20)]
        assert not sidecar.status().trouble


def test_an_app_that_is_not_there_costs_no_attempt(tmp_path: Path) -> None:
    app = App(tmp_path)
    with pushing(tmp_path, app.url) as sidecar:
        sidecar.publish("orders", texts(1, 2, 3), lane=ONE)
        trouble(sidecar, "the app cannot be reached")
        eventually(lambda: calls(sidecar, "refused") > 3, "it goes on trying")
        assert sidecar.metric("offramp_push_waiting") == 1
        with app:
            settled(sidecar, 3)
            assert app.done() == ["1", "2", "3"]
            counters = sidecar.status().counters
            assert (counters.nacked, counters.abandoned, counters.expired) == (0, 0, 0)
            for record in eventually(lambda: app.records(), "the app has noted the call"):
                assert (record["attempt"], record["possibly_processed"]) == (1, False)
            eventually(lambda: not sidecar.status().trouble, "the trouble is over")
            assert sidecar.metric("offramp_push_waiting") == 0
            # kill -9: the socket stays, and nobody listens.
            app.kill()
            sidecar.publish("orders", texts(4), lane=ONE)
            trouble(sidecar, "the app cannot be reached")
            app.start()
            settled(sidecar, 4)
        assert sidecar.status().counters.nacked == 0


def test_a_full_backlog_costs_no_attempt(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, contextlib.ExitStack() as waiting:
        listening.bind(str(tmp_path / "full.sock"))
        listening.listen(0)
        while True:
            caller = waiting.enter_context(socket.socket(socket.AF_UNIX))
            caller.setblocking(False)
            if caller.connect_ex(str(tmp_path / "full.sock")):
                break
        with pushing(tmp_path, f"http+unix://{tmp_path}/full.sock:/orders") as sidecar:
            sidecar.publish("orders", texts(1), lane=ONE)
            trouble(sidecar, "the app cannot be reached", "full.sock")
            eventually(lambda: calls(sidecar, "refused") > 2, "it goes on trying")
            counters = sidecar.status().counters
            assert (counters.nacked, counters.abandoned) == (0, 0)


def test_a_wrong_route_pauses_the_push_and_counts_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as (app, sidecar):
        app.answer(any={"status": 404})
        sidecar.publish("orders", texts(1), lane=ONE)
        trouble(sidecar, "HTTP 404", "push.url")
        app.answer()
        settled(sidecar, 1)
        assert app.records()[-1]["attempt"] == 1
        counters = sidecar.status().counters
        assert (counters.nacked, counters.dead_lettered) == (0, 0)
        eventually(lambda: not sidecar.status().trouble, "the trouble is over")


def test_an_overloaded_app_is_left_alone_for_as_long_as_it_asks(tmp_path: Path) -> None:
    with running(tmp_path, batch={"records": 1}) as (app, sidecar):
        app.answer(a={"status": 429, "headers": {"Retry-After": "1"}})
        sidecar.publish("orders", texts("a"), lane=ONE)
        (first,) = eventually(lambda: app.events("end"), "it was called")
        app.answer()
        sidecar.publish("orders", texts("b"), lane=ONE)
        settled(sidecar, 2)
        assert all(call["at"] - first["at"] > 0.95 for call in app.events()[1:])
        assert app.records()[-1]["attempt"] == 1
        assert sidecar.status().counters.overloaded == 1


def test_a_redirect_is_never_followed(tmp_path: Path) -> None:
    with running(tmp_path) as (app, sidecar):
        app.answer(a={"status": 307, "headers": {"Location": "/elsewhere"}})
        sidecar.publish("orders", texts("a"), lane=ONE)
        eventually(lambda: len(app.calls()) >= 2, "it is called again")
        app.answer()
        settled(sidecar, 1)
        assert {call["path"] for call in app.events()} == {"/orders"}


def test_an_answer_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    with running(tmp_path, {"max_answer": "1KiB"}) as (app, sidecar):
        app.answer(a={"body": "x" * 5_000_000})
        sidecar.publish("orders", texts("a"), lane=ONE)
        eventually(lambda: len(app.calls()) >= 2, "it is called again")
        assert app.records()[-1]["possibly_processed"] is True
        app.answer()
        settled(sidecar, 1)


def test_a_result_that_names_an_unknown_record_nacks_the_batch(tmp_path: Path) -> None:
    with running(tmp_path) as (app, sidecar):
        app.answer(a={"body": '{"failures": [{"index": 7}]}'})
        sidecar.publish("orders", texts("a"), lane=ONE)
        eventually(lambda: len(app.calls()) > 2, "it is called again")
        app.answer()
        settled(sidecar, 1)


def test_a_server_that_is_not_http_is_no_ack(tmp_path: Path) -> None:
    class Garbage(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(b"220 mail ready\r\n\r\n")

    port = free_port()
    with socketserver.ThreadingTCPServer(("127.0.0.1", port), Garbage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pushing(tmp_path, f"http://127.0.0.1:{port}/") as sidecar:
            sidecar.publish("orders", texts("a"), lane=ONE)
            eventually(lambda: calls(sidecar, "invalid") > 2, "it is called")
            assert sidecar.status().counters.acked == 0
        server.shutdown()
