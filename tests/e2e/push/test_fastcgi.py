"""Push into a real php-fpm."""

from pathlib import Path
from typing import Any

from tests.e2e.harness import Sidecar, eventually
from tests.e2e.push.fpm import Fpm
from tests.e2e.push.harness import calls, dead, pushing, settled, texts, trouble

ONE = 0


def sidecar_for(fpm: Fpm, push: dict[str, Any] | None = None, **settings: Any) -> Sidecar:
    return pushing(fpm.folder, "", {**fpm.push, **(push or {})}, **settings)


def test_a_script_with_the_helper_settles_each_record(tmp_path: Path) -> None:
    handler = """
        if ($record->value === 'no') throw new Offramp\\Push\\Reject('never');
        if ($record->value === 'later' && $record->attempt < 2) throw new Exception('not yet');
        echo 'what is printed is no answer';
    """
    with Fpm(tmp_path, handler) as fpm, sidecar_for(fpm) as sidecar:
        sidecar.publish("orders", [b"1", b"no", b"later", b"\xff\x00", b""], lane=ONE)
        settled(sidecar, 5)
        assert dead(sidecar, 1) == [("no", "REJECTED: never")]
        assert [line["value"] for line in fpm.begun()].count("later") == 2
        assert "1" in fpm.done()
        assert sidecar.status().counters.acked == 4


def test_a_fatal_error_that_arrives_as_200_is_no_ack(tmp_path: Path) -> None:
    handler = """
        if ($record->value === 'fatal') { ini_set('memory_limit', '4M'); str_repeat('x', 1 << 26); }
        if ($record->value === 'exit') exit(3);
    """
    with Fpm(tmp_path, handler) as fpm, sidecar_for(fpm) as sidecar:
        sidecar.publish("orders", texts("good"), lane=ONE)
        settled(sidecar, 1)
        sidecar.publish("orders", texts(1, 2, "fatal", 3, "exit", 4, 5), lane=ONE)
        settled(sidecar, 8)
        reasons = dict(dead(sidecar, 2))
        assert "Allowed memory size" in reasons["fatal"]
        assert reasons["exit"].endswith("the helper for PHP does: nothing")
        assert set(fpm.done()) == {"good", "1", "2", "3", "4", "5"}
        assert calls(sidecar, "unconfirmed") > 0


def test_a_record_that_kills_its_worker_is_found(tmp_path: Path) -> None:
    handler = "if ($record->value === 'killer') exec('kill -9 ' . getmypid());"
    with Fpm(tmp_path, handler) as fpm, sidecar_for(fpm, batch={"records": 3}) as sidecar:
        sidecar.publish("orders", texts(1, 2, 3, "killer", 4, 5, 6), lane=ONE)
        settled(sidecar, 7)
        assert dead(sidecar, 1) == [("killer", "WORKER_DIED")]
        assert set(fpm.done()) == set("123456")


def test_a_pool_without_a_free_worker_costs_no_attempt(tmp_path: Path) -> None:
    fpm = Fpm(tmp_path, "usleep(20000);", children=1, backlog=1)
    with fpm, sidecar_for(fpm, {"concurrency": 12}, batch={"records": 1}) as sidecar:
        sidecar.publish("orders", texts(*range(30)))
        settled(sidecar, 30)
        counters = sidecar.status().counters
        assert (counters.nacked, counters.abandoned, counters.dead_lettered) == (0, 0, 0)
        assert calls(sidecar, "refused") > 0, "the backlog was full"
        assert sorted(fpm.done(), key=int) == [str(number) for number in range(30)]


def test_a_pool_that_is_not_there_and_a_wrong_script_cost_no_attempt(tmp_path: Path) -> None:
    fpm = Fpm(tmp_path, "")
    script = fpm.script.read_text()
    with sidecar_for(fpm) as sidecar:
        sidecar.publish("orders", texts(1, 2), lane=ONE)
        trouble(sidecar, "the app cannot be reached", "fpm.sock")
        fpm.script.unlink()
        with fpm:
            trouble(sidecar, "HTTP 404")
            assert "Primary script unknown" in sidecar.log
            fpm.write(script)
            settled(sidecar, 2)
        assert fpm.done() == ["1", "2"]
        assert [line["flag"] for line in fpm.begun()] == [False, False]
        counters = sidecar.status().counters
        assert (counters.nacked, counters.abandoned) == (0, 0)


def test_kept_connections_survive_workers_that_end_and_a_reload(tmp_path: Path) -> None:
    fpm = Fpm(tmp_path, "usleep(5000);", max_requests=3)
    with fpm, sidecar_for(fpm, {"fastcgi_keep": True}, batch={"records": 1}) as sidecar:
        sidecar.publish("orders", texts(*range(60)))
        eventually(lambda: len(fpm.done()) > 20, "the load goes on")
        fpm.reload()
        settled(sidecar, 60)
        assert set(fpm.done()) == {str(number) for number in range(60)}
        assert sidecar.status().counters.dead_lettered == 0


def test_killing_the_pool_loses_nothing(tmp_path: Path) -> None:
    with Fpm(tmp_path, "usleep(5000);") as fpm, sidecar_for(fpm, batch={"records": 2}) as sidecar:
        sidecar.publish("orders", texts(*range(60)))
        for part in (10, 30):
            eventually(lambda part=part: len(fpm.done()) > part, "the load goes on")
            fpm.kill()
            fpm.start()
        settled(sidecar, 60)
        assert set(fpm.done()) == {str(number) for number in range(60)}
        assert sidecar.status().counters.dead_lettered == 0


def test_a_script_that_is_ended_by_its_time_limit_is_flagged(tmp_path: Path) -> None:
    handler = "if (!$record->possiblyProcessed && $record->value === 'slow') sleep(30);"
    with Fpm(tmp_path, handler, terminate="1s") as fpm, sidecar_for(fpm) as sidecar:
        sidecar.publish("orders", texts("slow"), lane=ONE)
        settled(sidecar, 1)
        assert [line["flag"] for line in fpm.begun()] == [False, True]
        assert calls(sidecar, "cut") == 1


def test_what_a_script_says_on_stderr_is_logged_on_one_line(tmp_path: Path) -> None:
    handler = "error_log('two' . chr(10) . 'lines ' . chr(27) . '[31m');"
    with Fpm(tmp_path, handler) as fpm, sidecar_for(fpm) as sidecar:
        sidecar.publish("orders", texts(1), lane=ONE)
        settled(sidecar, 1)
        assert fpm.done() == ["1"]
        (event,) = [event for event in sidecar.events() if event["message"] == "the script wrote to stderr"]
        assert "two lines" in event["error"]
        assert "\x1b" not in event["error"]
