"""Any text gives either settings or a ConfigError."""

import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar import config
from sidecar.config.build import keys_of
from sidecar.config.formats import Group, format_of
from sidecar.config.yaml_writer import write
from sidecar.model.errors import ConfigError
from sidecar.settings import Settings, SubscriptionSettings

ROUNDS = 1000 if os.environ.get("OFFRAMP_TEST_LONG") else 100


def words(cls: type) -> Iterator[str]:
    for key, (_, hint) in keys_of(cls).items():
        yield key
        fmt = format_of(hint)
        if isinstance(fmt, Group):
            yield from words(fmt.cls)


WORDS = sorted({*words(Settings), *words(SubscriptionSettings), "type", "local", "<<"})
scalars = st.one_of(
    st.sampled_from(
        [*WORDS, "none", "key", "5s", "1MiB", "-1", "0", "no", "", "${HOME}", "${NOT_THERE}", "${", "[", "{"]
    ),
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.dates(),
    st.text(max_size=20),
)
keys = st.one_of(st.sampled_from(WORDS), st.text(max_size=8))
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6), max_leaves=25
)


def answer(text: bytes, environ: dict[str, str] | None = None, options: tuple[str, ...] = ()) -> Settings | None:
    """Settings, or None for a ConfigError whose text is worth printing. Anything else fails the test."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "c.yaml")
        path.write_bytes(text)
        try:
            return config.load(str(path), environ=environ or {}, options=options)
        except ConfigError as error:
            for line in str(error).splitlines():
                assert line.startswith((str(path), "--set", "OFFRAMP_")), line
                line.encode()
            return None


@settings(max_examples=ROUNDS, deadline=None)
@given(documents)
def test_no_document_does_more_than_fail_with_a_config_error(document: Any) -> None:
    answer(yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass"), {"HOME": "/root"})


@settings(max_examples=ROUNDS, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text("abc:-[]{}&*!|>'\"%@`#,? \n\t${}<\\", max_size=60).map(str.encode)))
def test_no_bytes_do_more_than_fail_with_a_config_error(text: bytes) -> None:
    answer(text)


@settings(max_examples=ROUNDS, deadline=None)
@given(
    st.dictionaries(
        st.lists(st.sampled_from([word.upper() for word in WORDS] + ["", "A_B"]), max_size=4).map(
            lambda parts: "OFFRAMP_" + "__".join(parts)
        ),
        st.text(max_size=20),
        max_size=4,
    ),
    st.lists(
        st.tuples(st.lists(keys, max_size=4).map(".".join), scalars.map(str)).map("=".join) | st.text(max_size=12),
        max_size=4,
    ),
)
def test_no_override_does_more_than_fail_with_a_config_error(environ: dict[str, str], options: list[str]) -> None:
    answer(b"subscriptions: {a-b: {topics: [x]}, listen: {topics: [y]}}", environ, tuple(options))


def values_of(cls: type) -> st.SearchStrategy[Any]:
    """Settings with any values that are allowed by themselves."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for key, (field, hint) in keys_of(cls).items():
        fmt = format_of(hint)
        default = field.default
        if isinstance(fmt, Group):
            fields[key] = values_of(fmt.cls)
        elif isinstance(default, bool):
            fields[key] = st.booleans()
        elif isinstance(default, int | float):
            more = field.metadata.get("at_most", default * 2 + 1)
            fields[key] = st.sampled_from(
                [default, field.metadata.get("at_least", default), more, (default + more) // 2]
            )
        elif key in ("group", "socket"):
            fields[key] = st.text(max_size=10)
    return st.builds(cls, **fields)


@settings(max_examples=ROUNDS, deadline=None)
@given(
    values_of(Settings),
    st.builds(lambda s: dataclasses.replace(s, name="a", topics=("t",)), values_of(SubscriptionSettings)),
)
def test_what_is_written_loads_as_the_same_settings(top: Settings, subscription: SubscriptionSettings) -> None:
    settings = dataclasses.replace(top, subscriptions={"a": subscription})
    again = answer(write(settings).encode())
    if again is not None:
        assert dataclasses.replace(again, brokers={}) == settings


@pytest.mark.parametrize("depth", [3, 30])
def test_aliases_of_aliases_do_not_grow_without_end(depth: int) -> None:
    lines = ["a0: &a0 {x: y}"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, depth)]
    assert answer("\n".join(lines).encode()) is None


def test_json_is_yaml() -> None:
    document = {"subscriptions": {"orders": {"topics": ["a"], "batch": {"records": 5, "linger": "1ms"}}}}
    loaded = answer(json.dumps(document).encode())
    assert loaded is not None
    assert loaded.subscriptions["orders"].batch.records == 5
