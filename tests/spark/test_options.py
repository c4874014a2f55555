"""Options, checked: every error names the option, and the nearest known one."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from spark_bridge.bounded_readers import DeadLetterReader
from spark_bridge.columns import DEAD_LETTER_SCHEMA
from spark_bridge.errors import BadOption
from spark_bridge.options import BOUNDED, STREAMING, WRITING, NamedPosition, Options
from spark_bridge.positions import Lane

DOCS = Path(__file__).parents[2] / "docs" / "spark.md"


def streaming(**given: str) -> Options:
    return Options(given, STREAMING, "a stream")


def test_an_unknown_option_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(
        BadOption, match=r'option "subscripton": a stream has no such option. Did you mean "subscription"'
    ):
        streaming(subscripton="orders")


def test_names_of_options_have_no_case() -> None:
    assert streaming(MAXRECORDSPERBATCH="7")["maxRecordsPerBatch"] == 7


def test_options_of_spark_itself_are_passed_over() -> None:
    assert streaming(checkpointLocation="/somewhere", path="/x", name="copy")["name"] == "copy"
    assert Options({"queryName": "copy", "topic": "x"}, WRITING, "writing")["topic"] == "x"
    with pytest.raises(BadOption, match=r'option "nome": a stream has no such option\. Did you mean "name"'):
        streaming(checkpointLocation="/somewhere", path="/x", nome="copy")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("maxRecordsPerBatch", "many", "it is a whole number, 0 or more"),
        ("maxRecordsPerBatch", "-1", "it is a whole number, 0 or more"),
        ("maxBytesPerBatch", "1x", "it is a number of bytes, as in 1048576, 64m or 1g"),
        ("timeout", "soon", "it is a time, as in 500ms, 30s or 2m"),
        ("failOnDataLoss", "maybe", 'it is "true" or "false"'),
        ("startingPosition", "earlist", 'Did you mean "earliest"?'),
        ("startingPosition", '{"orders": 1}', '"orders" is not topic/lane'),
        ("startingPosition", '{"orders/0": -1}', "the position of orders/0 is -1; it must be 0 or more"),
        ("subscription", "", "it must not be empty"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_can(name: str, text: str, said: str) -> None:
    with pytest.raises(BadOption) as caught:
        streaming(**{name: text})
    assert str(caught.value).startswith(f"option {name}:")
    assert said in str(caught.value)


def test_a_token_is_not_repeated_in_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadOption) as caught:
        streaming(address="127.0.0.1:1", token="two words").access()
    assert "two words" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1048576", 1 << 20), ("64m", 64 << 20), ("64 MiB", 64 << 20), ("1g", 1 << 30), ("2kb", 2048), ("0", 0)],
)
def test_sizes_have_units(text: str, value: int) -> None:
    assert streaming(maxBytesPerBatch=text)["maxBytesPerBatch"] == value


@pytest.mark.parametrize(("text", "value"), [("500ms", 0.5), ("30s", 30.0), ("2m", 120.0), ("1.5", 1.5)])
def test_times_have_units(text: str, value: float) -> None:
    assert streaming(timeout=text)["timeout"] == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Earliest", NamedPosition.EARLIEST),
        ("latest", NamedPosition.LATEST),
        ("committed", NamedPosition.COMMITTED),
        ("2026-11-16T09:00:00Z", datetime(2026, 11, 16, 9, tzinfo=UTC)),
        ("2026-11-16", datetime(2026, 11, 16, tzinfo=UTC)),
        ("1500", datetime.fromtimestamp(1.5, UTC)),
        ('{"persistent://public/default/orders/3": 17}', {Lane("persistent://public/default/orders", 3): 17}),
    ],
)
def test_a_position_is_a_name_a_time_or_positions(text: str, value: object) -> None:
    assert Options({"startingPosition": text}, BOUNDED, "a bounded read")["startingPosition"] == value


@pytest.mark.parametrize("name", ["startingPosition", "endingPosition"])
def test_dead_letters_have_no_positions_to_choose(name: str) -> None:
    given = {"subscription": "orders", "address": "127.0.0.1:1", "deadLetters": "true", name: "2026-01-01T00:00:00Z"}
    with pytest.raises(BadOption, match=f"option {name}: dead letters are read as a whole"):
        DeadLetterReader(Options(given, BOUNDED, "a bounded read"), DEAD_LETTER_SCHEMA)


def test_an_address_must_be_given() -> None:
    with pytest.raises(BadOption, match="option address: it must be given"):
        streaming(subscription="orders").access()


def test_executors_need_no_copy_of_a_certificate(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nabc\n")
    assert (
        streaming(address="127.0.0.1:1", ca=str(tmp_path / "ca.pem")).access().ca == (tmp_path / "ca.pem").read_text()
    )


def test_a_missing_certificate_is_named() -> None:
    with pytest.raises(BadOption, match=r"option ca: /nowhere/ca.pem: No such file"):
        streaming(address="127.0.0.1:1", ca="/nowhere/ca.pem").access()


@pytest.mark.parametrize("name", sorted(STREAMING | BOUNDED | WRITING))
def test_every_option_is_documented(name: str) -> None:
    assert f"`{name}`" in DOCS.read_text()
