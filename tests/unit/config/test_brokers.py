"""Brokers in the configuration: types, options of the adapters, and secrets."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from sidecar import brokers, config
from sidecar.brokers.base import BrokerOptions, Traits
from sidecar.config.yaml_writer import write
from sidecar.model.errors import ConfigError
from sidecar.settings import BrokerSettings, setting
from tests.memory_broker import MemoryOptions
from tests.unit.config.kit import load, problems


@dataclass(frozen=True, slots=True, kw_only=True)
class PostOptions(BrokerOptions):
    """Options of a fictitious broker."""

    traits: ClassVar[Traits] = MemoryOptions.traits

    servers: tuple[str, ...] = setting("Where it is.", at_least=1, example=("post:1",))
    password: str = setting("What opens it.", "")
    pin: int = setting("What opens it, too.", 0, secret=True, at_most=9999)
    url: str = setting("Another way to say where it is.", "")
    properties: Mapping[str, str] = setting("Anything else.", {})
    limit: int | None = setting("A limit, if there is one.", None)


@pytest.fixture(autouse=True)
def post(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second type of broker beside the local one."""
    options_class = brokers.options_class
    monkeypatch.setattr(brokers, "kinds", lambda: ("local", "post"))
    monkeypatch.setattr(brokers, "options_class", lambda kind: PostOptions if kind == "post" else options_class(kind))


def test_options_are_read_by_the_class_of_the_adapter() -> None:
    settings = load("brokers: {main: {type: post, servers: 'a:1,b:2', properties: {a.b: 5, c: no}, limit: 3}}")
    options = settings.brokers["main"].options
    assert options == PostOptions(servers=("a:1", "b:2"), properties={"a.b": "5", "c": "no"}, limit=3)
    assert settings.brokers["main"] == BrokerSettings(name="main", type="post", options=options)


def test_an_optional_value_may_be_null() -> None:
    assert load("brokers: {post: {servers: a, limit: null}}").brokers["post"].options.limit is None


def test_the_type_may_be_left_out_where_the_name_says_it() -> None:
    assert load("brokers: {post: {servers: a}}").brokers["post"].type == "post"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("brokers: {main: {type: psot}}", 'brokers.main.type: "psot" is not one of local, post. Did you mean "post"?'),
        ("brokers: {main: {}}", "brokers.main.type: is missing. It is local or post."),
        ("brokers: {main: }", "brokers.main.type: is missing. It is local or post."),
        ("brokers: {main: {type: [x]}}", "brokers.main.type: a list is not local or post"),
        ("brokers: {main: 5}", 'brokers.main: "5" is not a group of keys; it takes type and the options of that type'),
        ("brokers: {post: }", "brokers.post.servers: is missing. Where it is."),
        (
            "brokers: {post: {servers: a, sevrers: b}}",
            'brokers.post.sevrers: is not a known key. Did you mean "servers"?',
        ),
        ("brokers: {post: {servers: a, properties: {x: [y]}}}", "brokers.post.properties.x: a list is not text"),
    ],
)
def test_a_wrong_broker_is_told_so(text: str, said: str) -> None:
    assert problems(text) == [f"c.yaml:1: {said}"]


def test_a_type_whose_library_is_missing_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(kind: str) -> type:
        raise ImportError(f"no module for {kind}")

    monkeypatch.setattr(brokers, "options_class", missing)
    assert problems("brokers: {post: {servers: a}}") == [
        'c.yaml:1: brokers.post.type: "post" needs a library that is not installed: no module for post'
    ]


def test_a_subscription_of_a_broker_that_is_wrong_is_not_blamed_for_it() -> None:
    lines = problems("brokers:\n  main: {type: post}\nsubscriptions:\n  s: {topics: [a], broker: main}\n")
    assert lines == ["c.yaml:2: brokers.main.servers: is missing. Where it is."]


def test_the_local_broker_is_there_if_a_subscription_names_it_or_there_is_no_other() -> None:
    assert list(load("log:\n").brokers) == ["local"]
    assert list(load("brokers: {post: {servers: a}}").brokers) == ["post"]
    assert list(load("brokers: {post: {servers: a}}\nsubscriptions: {s: {topics: [a]}}").brokers) == ["post", "local"]


@pytest.mark.parametrize(
    "text",
    [
        "brokers: {post: {servers: a, password: [hunter2]}}",
        "brokers: {post: {servers: a, pin: hunter2}}",
        "brokers: {post: {servers: a, pin: '${PIN:hunter2}'}}",
        "brokers: {post: {servers: a, limit: '${DB_PASSWORD}'}}",
        "brokers: {post: '${DB_PASSWORD}'}",
        "brokers: {post: {servers: a, limit: 'amqp://me:hunter2@host'}}",
    ],
)
def test_a_secret_never_appears_in_an_error(text: str) -> None:
    said = "\n".join(problems(text, DB_PASSWORD="hunter2"))
    assert "brokers.post" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("mark", ["*", "!", "!x!", "&a &", "%", "@", "`", "|", "> ", '"\\q', "[", "{", "? ", "- ", "'"])
def test_a_secret_that_is_not_even_yaml_never_appears_in_an_error(mark: str) -> None:
    try:
        load(f"brokers:\n  post:\n    servers: a\n    pin: {mark}hunter2\n")
    except ConfigError as error:
        assert "hunter2" not in str(error)  # noqa: PT017
    else:
        pytest.fail("a pin is a number")


def test_a_secret_given_by_set_never_appears_in_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(None, environ={}, options=["brokers.post.pin=hunter2", "brokers.post.servers=a", "x=hunter2"])
    assert "hunter2" not in str(caught.value)


def test_settings_are_written_without_secrets_and_load_again() -> None:
    settings = load("""
brokers:
  post:
    servers: [a, "b c"]
    password: hunter2
    pin: 1234
    url: amqp://me:hunter2@host/x
    properties: {sasl.password: hunter2, other: "${X:y}"}
subscriptions: {s: {topics: ["no", "$${a}"], group: "x: #y"}}
""")
    written = write(settings)
    assert "hunter2" not in written
    assert "1234" not in written
    shown = written.replace("pin: (hidden)", "pin: 1234")
    again = load(shown)
    assert again.subscriptions == settings.subscriptions
    assert again.brokers["post"].options.servers == ("a", "b c")
    assert again.brokers["post"].options.password == "(hidden)"
