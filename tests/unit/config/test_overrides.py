"""Overrides by the environment and --set, and their precedence."""

from pathlib import Path

import pytest

from sidecar import config
from sidecar.model.errors import ConfigError
from sidecar.model.records import Order
from sidecar.settings import LogLevel, Settings

FILE = """
log: {level: info}
subscriptions:
  my-orders: {topics: [a]}
  Mixed_Case: {topics: [b]}
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "offramp.yaml"
    file.write_text(FILE)
    return str(file)


def load(path: str, *options: str, **environ: str) -> Settings:
    return config.load(path, environ=environ, options=options)


def problem(path: str, *options: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, *options, **environ)
    return str(caught.value)


def test_the_environment_beats_the_file_and_set_beats_both(path: str) -> None:
    assert load(path).log.level is LogLevel.INFO
    assert load(path, OFFRAMP_LOG__LEVEL="error").log.level is LogLevel.ERROR
    assert load(path, "log.level=debug", OFFRAMP_LOG__LEVEL="error").log.level is LogLevel.DEBUG


def test_the_last_set_of_a_key_wins(path: str) -> None:
    assert load(path, "log.level=debug", "log.level=warning").log.level is LogLevel.WARNING


def test_a_variable_finds_a_name_whatever_its_case_and_hyphens(path: str) -> None:
    settings = load(
        path, OFFRAMP_SUBSCRIPTIONS__MY_ORDERS__ORDER="key", OFFRAMP_SUBSCRIPTIONS__MIXED_CASE__BATCH__RECORDS="7"
    )
    assert settings.subscriptions["my-orders"].order is Order.KEY
    assert settings.subscriptions["Mixed_Case"].batch.records == 7


def test_a_variable_may_bring_a_new_name_in_lower_case(path: str) -> None:
    assert load(path, OFFRAMP_SUBSCRIPTIONS__NEW_ONE__TOPICS="x").subscriptions["new_one"].topics == ("x",)


def test_a_variable_that_may_mean_two_names_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "offramp.yaml"
    file.write_text("subscriptions: {a-b: {topics: [x]}, a_b: {topics: [y]}}")
    said = problem(str(file), OFFRAMP_SUBSCRIPTIONS__A_B__ORDER="key")
    assert said == (
        "OFFRAMP_SUBSCRIPTIONS__A_B__ORDER: subscriptions: may mean a-b or a_b; use --set, or ${VAR} within the file"
    )


def test_variables_without_a_double_underscore_are_somebody_elses(path: str) -> None:
    load(path, OFFRAMP_PORT="tcp://10.0.0.1:80", OFFRAMP_SERVICE_HOST="10.0.0.1", OFFRAMP_ADDRESS="x", OTHER__X="y")


def test_a_variable_for_an_unknown_key_is_an_error_that_names_the_variable(path: str) -> None:
    assert problem(path, OFFRAMP_LISTEN__SOKCET="/x") == (
        'OFFRAMP_LISTEN__SOKCET: listen.sokcet: is not a known key. Did you mean "socket"?'
    )


def test_a_variable_with_an_empty_level_is_an_error(path: str) -> None:
    assert problem(path, OFFRAMP___LISTEN="x").startswith("OFFRAMP___LISTEN: is not a key")


def test_lists_and_groups_can_be_set_as_a_whole(path: str) -> None:
    settings = load(
        path, "subscriptions.a={topics: [x, y], order: lane}", OFFRAMP_SUBSCRIPTIONS__MY_ORDERS__TOPICS="[p, q]"
    )
    assert settings.subscriptions["a"].topics == ("x", "y")
    assert settings.subscriptions["a"].order is Order.LANE
    assert settings.subscriptions["my-orders"].topics == ("p", "q")


def test_a_value_of_set_is_taken_as_it_stands(path: str) -> None:
    settings = load(path, "subscriptions.my-orders.group=${HOME}: # =x", "listen.tcp=", HOME="/root")
    assert settings.subscriptions["my-orders"].group == "${HOME}: # =x"
    assert settings.listen.tcp == ""


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("log.level", '--set: "log.level" is not key=value, as in --set listen.socket=/run/offramp.sock'),
        ("=x", '--set: "" is not key=value, as in --set listen.socket=/run/offramp.sock'),
        ("log..level=x", '--set: "log..level" is not key=value, as in --set listen.socket=/run/offramp.sock'),
        ("log.level=loud", '--set: log.level: "loud" is not one of debug, info, warning, error'),
        ("log.lvel=info", '--set: log.lvel: is not a known key. Did you mean "level"?'),
        ("subscriptions.x={a", "--set: subscriptions.x: is not YAML: expected ',' or '}', but got '<stream end>'"),
        ("subscriptions.x={}", "--set: subscriptions.x.topics: is missing. Topics to consume."),
        ("log=5", '--set: log: "5" is not a group of keys; it takes level, format'),
    ],
)
def test_a_wrong_set_is_told_so(path: str, option: str, said: str) -> None:
    assert problem(path, option) == said


def test_a_variable_that_is_not_utf8_is_refused_and_can_be_printed(path: str) -> None:
    said = problem(path, OFFRAMP_LISTEN__SOCKET="/tmp/\udcff")
    assert said == 'OFFRAMP_LISTEN__SOCKET: listen.socket: "/tmp/\\xdcff" is not UTF-8 text'
    said.encode()
