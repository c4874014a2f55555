"""The harness of the benchmarks: turns, medians, goals, and the files it writes. No test judges a figure."""

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import machine, results, suites
from benchmarks.__main__ import main
from benchmarks.environment import BenchmarkEnvironment
from benchmarks.progress import Plan, Progress
from benchmarks.report import pages, picture, table
from benchmarks.results import Circumstances
from benchmarks.rows import Benchmark, Figure, Row, at_least, at_most
from benchmarks.runner import Outcome, run
from benchmarks.suites import clients
from tests.servers.tools import Missing

ROOT = Path(__file__).parents[2]
THEN = Circumstances("2026-01-01T00:00:00", "2026-01-01T00:10:00", 0.1, 2.0, {"cores": 2, "processor": "p"}, {"a": "1"})


class Script:
    """Benchmarks that return given values, and a log of their calls."""

    def __init__(self) -> None:
        self.measured: list[str] = []

    def benchmark(self, name: str, *values: float | BaseException, once: bool = False) -> Benchmark:
        left = iter(values)

        def measure(environment: BenchmarkEnvironment) -> Mapping[str, float]:
            self.measured.append(name)
            value = next(left)
            if isinstance(value, BaseException):
                raise value
            return {name: value}

        return Benchmark(name, "", (Row(name, "s"),), measure, seconds=1.0, once=once)


@pytest.fixture
def script() -> Script:
    return Script()


def run_all(*benchmarks: Benchmark, repeats: int = 3) -> Outcome:
    with BenchmarkEnvironment(quick=True) as environment, Progress(benchmarks, repeats, io.StringIO()) as progress:
        return run(benchmarks, environment, repeats, progress)


def figure(value: float, *, name: str = "row", **more: object) -> Figure:
    return Figure(Row(name, "s", **more), [value])  # type: ignore[arg-type]


def test_each_turn_measures_every_benchmark_once(script: Script) -> None:
    run_all(script.benchmark("a", 1, 2, 3), script.benchmark("b", 1, 2, 3))
    assert script.measured == ["a", "b", "a", "b", "a", "b"]


def test_what_takes_long_is_measured_in_the_first_turn_only(script: Script) -> None:
    run_all(script.benchmark("long", 1, once=True), script.benchmark("b", 1, 2, 3))
    assert script.measured == ["long", "b", "b", "b"]


def test_a_row_has_the_median_and_half_the_distance_of_the_extremes(script: Script) -> None:
    (found,) = run_all(script.benchmark("a", 10, 30, 20)).figures
    assert (found.value, found.spread, found.repeats) == (20, 0.5, [10, 30, 20])


def test_a_baseline_is_compared_with_turn_by_turn() -> None:
    rows = (Row("direct", "1/s"), Row("mine", "1/s", at_least(0.5, of_baseline=True), "direct"))
    turns = iter([{"direct": 100.0, "mine": 60.0}, {"direct": 10.0, "mine": 6.0}, {"direct": 1.0, "mine": 0.1}])
    outcome = run_all(Benchmark("b", "", rows, lambda environment: next(turns), seconds=1.0))
    assert outcome.figures[1].of_baseline == 0.6
    assert outcome.figures[1].verdict == "met"


def test_a_missed_goal_is_said() -> None:
    assert figure(6.1, goal=at_most(6)).verdict == "MISSED"
    assert figure(6.0, goal=at_most(6)).verdict == "met"
    assert "MISSED" in table.text([figure(6.1, goal=at_most(6))])


def test_what_is_not_installed_is_skipped_with_a_sentence(script: Script) -> None:
    outcome = run_all(script.benchmark("php", Missing("PHP is not installed")), script.benchmark("b", 1, 2, 3))
    assert outcome.skipped == {"php": "PHP is not installed"}
    assert [one.row.name for one in outcome.figures] == ["b"]
    assert script.measured.count("php") == 1


def test_a_benchmark_that_breaks_does_not_stop_the_others(script: Script) -> None:
    outcome = run_all(script.benchmark("bad", 1, ValueError("no")), script.benchmark("b", 1, 2, 3))
    assert outcome.failed == {"bad": "ValueError: no"}
    assert script.measured.count("b") == 3


def test_ctrl_c_shows_what_was_measured_until_then(script: Script) -> None:
    outcome = run_all(script.benchmark("a", 1, 2, 3), script.benchmark("b", 4, KeyboardInterrupt()))
    assert outcome.interrupted
    assert [(one.row.name, one.repeats) for one in outcome.figures] == [("a", [1, 2]), ("b", [4])]


def test_a_benchmark_that_forgets_a_row_has_broken() -> None:
    rows = (Row("a", "s"), Row("b", "s"))
    assert "b" in run_all(Benchmark("b", "", rows, lambda environment: {"a": 1.0}, seconds=1.0)).failed


def test_the_time_that_is_left_is_corrected_by_what_was_seen(script: Script) -> None:
    one, two = script.benchmark("one"), script.benchmark("two")
    plan = Plan([one, two], 2)
    assert plan.left == 4.0
    plan.done(one, 3.0)
    assert plan.left == 9.0


def test_a_machine_that_is_not_quiet_is_said_loudly_and_a_quiet_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert machine.disturbance(0.5) == ""
    assert machine.disturbance(0.6).startswith("THE MACHINE IS NOT QUIET: a load average of 0.6 on 2 cores")


def test_a_run_of_some_rows_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    results.write(path, ["a", "b", "gone"], [figure(1, name="a"), figure(2, name="b"), figure(3, name="gone")], THEN)
    results.write(path, ["a", "b"], [figure(5, name="b", goal=at_most(6))], THEN)
    rows = json.loads(path.read_text())["rows"]
    assert [(row["name"], row["value"]) for row in rows] == [("a", 1), ("b", 5)]
    assert rows[1]["goal"] == {"value": 6, "at_least": False, "of_baseline": False, "met": True}
    assert {"unit", "baseline", "repeats", "spread", "machine", "versions", "load_at_start"} <= set(rows[0])


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    row = Row("mine", "1/s", at_least(0.5, of_baseline=True), "direct")
    results.write(path, ["mine"], [Figure(row, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0])], THEN)
    (found,) = results.read(path)
    assert found == results.Result(Figure(row, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]), THEN)


def test_the_picture_is_well_formed_and_shows_what_was_measured() -> None:
    rows = [row for benchmark in suites.BENCHMARKS for row in benchmark.rows]
    found = [results.Result(Figure(row, [0.5], [1.0] if row.baseline else ()), THEN) for row in rows]
    texts = [element.text for element in ElementTree.fromstring(picture.svg(found)).iter() if element.text]
    assert all(panel.title in texts for panel in picture.PANELS)
    assert all(panel.title not in picture.svg([]) for panel in picture.PANELS)


def test_names_are_unique_and_every_baseline_is_a_row_beside_it() -> None:
    rows = [row.name for benchmark in suites.BENCHMARKS for row in benchmark.rows]
    assert len(set(rows)) == len(rows)
    for benchmark in suites.BENCHMARKS:
        assert {row.baseline for row in benchmark.rows} - {""} <= {row.name for row in benchmark.rows}
    assert set(pages.SHORT) <= set(rows)
    assert {bar.row for panel in picture.PANELS for bar in panel.bars} <= set(rows)


def test_the_programs_of_other_languages_are_where_they_are_started() -> None:
    scripts = [word for command in clients.PROGRAMS.values() for word in command if word.endswith(".php")]
    assert scripts
    assert all((clients.ROOT / script).is_file() for script in scripts)
    assert (clients.JAR.parents[1] / "pom.xml").is_file()


def test_the_whole_is_planned_to_take_less_than_fifteen_minutes() -> None:
    assert Plan(suites.chosen([]), 3).left < 15 * 60


def test_benchmarks_are_chosen_by_the_beginning_of_their_name_or_a_row_s() -> None:
    assert [one.name for one in suites.chosen(["kafka-latency-p99"])] == ["kafka-latency"]
    named = suites.chosen(["spark"])
    assert [one.name for one in named if one not in suites.chosen([])] == ["spark", "spark-beside-own"]
    assert {one.name for one in suites.chosen(["dispatch-1"])} == {"dispatch-1", "dispatch-16"}
    with pytest.raises(LookupError, match=r'begins with "kafak".*kafka-latency'):
        suites.chosen(["kafak"])


def test_an_unknown_name_is_refused_and_the_list_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "kafak"])
    assert "kafka-latency" in capsys.readouterr().err
    assert main(["--list"]) == 0
    assert "dispatch-64" in capsys.readouterr().out


@pytest.mark.parametrize("name", pages.PAGES)
def test_pages_show_the_results_that_are_kept(name: str) -> None:
    page = (ROOT / name).read_text("utf-8")
    assert "<!-- figures: " in page
    assert page == pages.filled(page, results.read(results.LATEST)), "run `python -m benchmarks --pages`"
