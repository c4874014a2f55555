"""From a file to settings, and the errors of a file with mistakes."""

from pathlib import Path
from typing import Any

import pytest

from sidecar import config
from sidecar.model.errors import ConfigError
from sidecar.model.records import Order
from sidecar.settings import ListenSettings, LogLevel
from tests.unit.config.kit import load, problems

pytestmark = pytest.mark.usefixtures("folder")


def test_a_small_file_gets_defaults_for_all_the_rest() -> None:
    settings = load("subscriptions: {orders: {topics: [orders]}}")
    orders = settings.subscriptions["orders"]
    assert (orders.name, orders.topics, orders.group_name) == ("orders", ("orders",), "orders")
    assert orders.order is Order.NONE
    assert settings.listen.socket == "/run/offramp/offramp.sock"


def test_every_kind_of_value_arrives_as_what_it_is() -> None:
    settings = load("""
listen: {socket_mode: 0600, max_request_bytes: 8MiB}
log: {level: debug}
drain: {deadline: 1m30s}
subscriptions:
  orders:
    topics: [a, b]
    order: key
    batch: {records: 1_000, linger: 20ms}
    retry: {factor: 1.5}
    outage: {enabled: off}
""")
    orders = settings.subscriptions["orders"]
    assert settings.listen.socket_mode == 0o600
    assert settings.listen.max_request_bytes == 8 << 20
    assert settings.log.level is LogLevel.DEBUG
    assert settings.drain.deadline == 90
    assert orders.order is Order.KEY
    assert (orders.batch.records, orders.batch.linger) == (1000, 0.02)
    assert orders.retry.factor == 1.5
    assert orders.outage.enabled is False


def test_words_that_yaml_takes_for_something_else_are_texts_where_a_text_is_wanted() -> None:
    settings = load("subscriptions: {norway: {topics: [no, on, 12:30, 0x1f, 2024-01-01, null_], group: yes}}")
    norway = settings.subscriptions["norway"]
    assert norway.topics == ("no", "on", "12:30", "0x1f", "2024-01-01", "null_")
    assert norway.group == "yes"


def test_one_topic_needs_no_brackets_and_several_may_have_commas() -> None:
    settings = load("subscriptions: {a: {topics: orders}, b: {topics: 'x, y'}}")
    assert settings.subscriptions["a"].topics == ("orders",)
    assert settings.subscriptions["b"].topics == ("x", "y")


def test_a_group_of_keys_may_be_empty() -> None:
    assert load("listen:\nhttp: {}\nsubscriptions:\n").listen.max_sessions == 1000


def test_a_wrong_word_is_answered_with_the_nearest_right_one() -> None:
    assert problems("\n\nsubscriptions:\n  orders:\n    topics: [a]\n    order: keys\n") == [
        'c.yaml:6: subscriptions.orders.order: "keys" is not one of none, key, lane. Did you mean "key"?'
    ]


def test_an_unknown_key_is_answered_with_the_nearest_known_one() -> None:
    assert problems("listen:\n  sokcet: /x\n") == [
        'c.yaml:2: listen.sokcet: is not a known key. Did you mean "socket"?'
    ]


def test_an_unknown_key_that_looks_like_none_is_answered_with_all() -> None:
    assert problems("log:\n  zzz: 1\n") == ["c.yaml:2: log.zzz: is not a known key. Known here: level, format."]


def test_a_key_with_a_hyphen_is_led_to_the_underscore() -> None:
    (line,) = problems("subscriptions: {a: {topics: [a], dead-letter: {topic: x}}}")
    assert line.endswith('is not a known key. Did you mean "dead_letter"?')


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file() -> None:
    lines = problems("""\
listen: {socket_mode: 999}
log: {level: loud, format: xml}
subscriptions:
  orders:
    batch: {records: 0, linger: 2 parsecs}
    topics: []
  sound: {topics: [a], broker: nowhere}
""")
    assert lines == [
        'c.yaml:1: listen.socket_mode: "999" is not a mode in octal such as 0660',
        'c.yaml:2: log.format: "xml" is not one of text, json',
        'c.yaml:2: log.level: "loud" is not one of debug, info, warning, error',
        'c.yaml:5: subscriptions.orders.batch.linger: "2 parsecs" is not a duration such as 200ms, 5s, 10m or 1h',
        'c.yaml:5: subscriptions.orders.batch.records: "0" is too small; it takes 1 to 100000',
        "c.yaml:6: subscriptions.orders.topics: 0 items is too small; it takes at least 1",
        'c.yaml:7: subscriptions.sound.broker: "nowhere" is not among brokers. There is local.',
    ]


def test_what_is_missing_is_named_at_the_place_where_it_should_be() -> None:
    assert problems("log:\nsubscriptions:\n  orders:\n    order: key\n") == [
        "c.yaml:3: subscriptions.orders.topics: is missing. Topics to consume."
    ]


def test_a_key_without_a_value_is_told_what_it_takes() -> None:
    assert problems("drain:\n  deadline:\n") == [
        "c.yaml:2: drain.deadline: has no value; it takes a duration such as 200ms, 5s, 10m or 1h, at least 0s"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listen: 5", '"5" is not a group of keys; it takes socket,'),
        ("listen: [a]", "a list is not a group of keys"),
        ("listen: {socket: {a: b}}", "a group of keys is not text"),
        ("drain: {deadline: [5s]}", "a list is not a duration"),
        ("subscriptions: {a: {topics: {x: y}}}", "a group of keys is not a list"),
        ("subscriptions: [a]", "a list is not a group of keys; it takes names"),
        ("subscriptions: {a: {topics: [[x]]}}", "a list is not text"),
        ("subscriptions: {a: {topics: [x, '']}}", "has an empty item"),
        ("subscriptions: {a: {topics: [x, y, x]}}", '"x" is given twice'),
        ("subscriptions: {a.b: {topics: [x]}}", "is not a valid name"),
        ("subscriptions: {'': {topics: [x]}}", "is not a valid name"),
        ("subscriptions: {a__b: {topics: [x]}}", "is not a valid name"),
        ("just words", '"just words" is not a group of keys'),
        ("- a\n- b", "a list is not a group of keys"),
        ("? [a, b]\n: c", "has a key that is not plain text"),
        ("listen: !!python/object:os.system {}", "has a tag, which is not supported"),
        ("listen: &a {socket: *a}", "is an alias that contains itself"),
        ("[" * 80 + "]" * 80, "is nested too deeply"),
        ("<<: 5", "takes an alias of a group of keys"),
    ],
)
def test_a_value_of_the_wrong_shape_is_told_the_right_one(text: str, said: str) -> None:
    assert any(said in line for line in problems(text)), problems(text)


def test_a_key_that_is_there_twice_is_an_error() -> None:
    assert problems("log:\n  level: info\n  level: debug\n") == [
        "c.yaml:3: log.level: is given twice; first in c.yaml:2"
    ]


def test_a_control_character_in_a_key_stays_on_one_line() -> None:
    (line,) = problems('"a\\nb": 1')
    assert "a\\x0ab: is not a known key" in line


def test_an_alias_is_used_and_changed_in_one_place_only() -> None:
    settings = load(
        """
subscriptions:
  a: &a {topics: [x], order: key}
  b: {<<: *a, group: other, parking: {topic: b.retry}}
""",
        OFFRAMP_SUBSCRIPTIONS__B__ORDER="lane",
    )
    assert settings.subscriptions["a"].order is Order.KEY
    assert (settings.subscriptions["b"].order, settings.subscriptions["b"].topics) == (Order.LANE, ("x",))


def test_a_missing_file_a_folder_and_an_empty_file_get_one_sentence_each(folder: Path) -> None:
    (folder / "empty.yaml").write_text("# only a comment\n")
    (folder / "folder.yaml").mkdir()
    said = {}
    for name in ("missing.yaml", "folder.yaml", "empty.yaml"):
        with pytest.raises(ConfigError) as caught:
            config.load(name, environ={})
        said[name] = str(caught.value)
    assert said == {
        "missing.yaml": "missing.yaml: there is no such file",
        "folder.yaml": "folder.yaml: is a folder, not a file",
        "empty.yaml": "empty.yaml: is empty; `offramp lint --example` prints one to start from",
    }


def test_a_file_that_is_not_utf8_is_told_where(folder: Path) -> None:
    (folder / "latin.yaml").write_bytes(b"log:\n  level: \xe9\n")
    with pytest.raises(ConfigError, match=r"^latin.yaml:2: is not UTF-8 text: byte 0xe9$"):
        config.load("latin.yaml", environ={})


def test_a_byte_order_mark_is_no_obstacle(folder: Path) -> None:
    (folder / "bom.yaml").write_bytes(b"\xef\xbb\xbflog: {level: error}\n")
    assert config.load("bom.yaml", environ={}).log.level is LogLevel.ERROR


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("log: {level: info", "c.yaml:1: is not YAML: expected ',' or '}', but got '<stream end>'"),
        ("log:\n\tlevel: info\n", "c.yaml:2: is not YAML: found character '\\t' that cannot start any token. "
         "Indent with spaces: YAML takes no tabs"),
        ("log: {level: ${LEVEL}}", "quote variables"),
        ("a: b: c", "c.yaml:1: is not YAML: mapping values are not allowed here"),
        ("a: *x", "c.yaml:1: is not YAML: there is no such alias; a text that begins with * needs quotes"),
        ("a:\n    b: 2\n  c: 3\n", "c.yaml:3: is not YAML: keys of one level begin in one column, and this"),
        ("a: 1\n---\nb: 2\n", "c.yaml:2: is not YAML: holds more than one document"),
        ("a: \x00", "c.yaml:1: holds the character U+0000, which YAML does not allow"),
        ("[" * 3000, "c.yaml: is nested too deeply"),
    ],
)  # fmt: skip
def test_what_is_not_yaml_is_told_in_one_sentence(text: str, said: str) -> None:
    (line,) = problems(text)
    assert said in line


def test_variables_are_filled_in() -> None:
    settings = load(
        """
listen: {socket: "${DIR}/${NAME:offramp}.sock"}
subscriptions: {a: {topics: "${TOPICS}", group: "${EMPTY:unused}x"}}
log:
  level: ${LEVEL:debug}
""",
        DIR="/tmp/x",
        TOPICS="a,b",
        EMPTY="",
    )
    assert settings.listen.socket == "/tmp/x/offramp.sock"
    assert settings.subscriptions["a"].topics == ("a", "b")
    assert settings.subscriptions["a"].group == "x"
    assert settings.log.level is LogLevel.DEBUG


def test_what_a_variable_holds_cannot_change_the_shape_of_the_file() -> None:
    settings = load("subscriptions:\n  a:\n    topics: [t]\n    group: ${GROUP}\n", GROUP="x}\n  b: {topics: [evil]}")
    assert list(settings.subscriptions) == ["a"]


def test_a_dollar_is_written_twice_before_a_brace_to_be_a_dollar() -> None:
    assert load("subscriptions: {a: {topics: [t], group: 'a$${b}$c'}}").subscriptions["a"].group == "a${b}$c"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${LEVEL}", "the variable LEVEL is not set; ${LEVEL:default} sets a default"),
        ("${LEVEL:-info}", "the default of ${LEVEL} follows the colon without a dash: ${LEVEL:info}"),
        ("${1}", '"${1}" is not a variable such as ${NAME} or ${NAME:default}; a plain ${ is $${'),
        ("'${LEVEL'", '"${LEVEL" is not a variable'),
    ],
)
def test_a_variable_that_cannot_be_filled_in_is_named(text: str, said: str) -> None:
    (line,) = problems(f"log:\n  level: {text}\n")
    assert line.startswith(f"c.yaml:2: log.level: {said}")


def test_without_a_file_the_rest_is_all_there_is() -> None:
    settings = config.load(
        None, environ={"OFFRAMP_SUBSCRIPTIONS__ORDERS__TOPICS": "orders"}, options=["log.level=error"]
    )
    assert settings.subscriptions["orders"].topics == ("orders",)
    assert settings.log.level is LogLevel.ERROR


def test_the_file_is_found_by_variable_and_then_by_place(folder: Path) -> None:
    assert config.find({}) is None
    (folder / "offramp.yaml").touch()
    assert config.find({}) == "offramp.yaml"
    assert config.find({"OFFRAMP_CONFIG": "other.yaml"}) == "other.yaml"


def test_a_command_that_only_calls_needs_no_variable_of_the_rest() -> None:
    def listen(**given: Any) -> ListenSettings:
        return config.load_section(ListenSettings, "listen", "offramp.yaml", **{"environ": {}, **given})

    Path("offramp.yaml").write_text("listen: {socket: /x.sock}\nsubscriptions: {a: {topics: '${SECRET}'}}\n")
    assert listen().socket == "/x.sock"
    assert listen(environ={"OFFRAMP_LISTEN__SOCKET": "/y"}).socket == "/y"
    with pytest.raises(ConfigError, match=r"listen\.sokcet"):
        listen(options=["listen.sokcet=x"])
