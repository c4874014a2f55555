"""How values are written: durations, sizes, modes, choices."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config.formats import Format, format_of
from sidecar.model.addresses import split_address
from sidecar.model.records import Order
from sidecar.model.units import FormatError, parse_duration, parse_size, show_duration, show_size
from sidecar.settings import Address, Bytes, Mode, Seconds


def parse(hint: Any, text: str) -> Any:
    fmt = format_of(hint)
    assert isinstance(fmt, Format)
    return fmt.parse(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("200ms", 0.2), ("5s", 5), ("10m", 600), ("1h", 3600), ("2d", 172800), ("1.5s", 1.5), ("1h30m", 5400),
        ("1m200ms", 60.2), ("5 s", 5), ("0", 0), ("7", 7), ("0.25", 0.25),
    ],
)  # fmt: skip
def test_a_duration_is_a_number_with_units_or_plain_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5x", "1:30", "-5s", "s", "5 parsecs", "inf", "nan", "1e999", "٥s", "9" * 400 + "s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="is not a duration such as 200ms, 5s, 10m or 1h"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096), ("512KiB", 524288), ("1MiB", 1048576), ("10MB", 10_000_000), ("1.5MiB", 1572864),
        ("1Gi", 1 << 30), ("2gib", 2 << 30), ("7B", 7), ("1_000", 1000), ("3 KB", 3000),
    ],
)  # fmt: skip
def test_a_size_is_a_number_with_a_unit_of_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "1XB", "-1", "1e6", "MiB", "0.3B", "9" * 5000])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_size(text)


def test_nothing_is_longer_than_a_lifetime_or_larger_than_any_disk() -> None:
    with pytest.raises(FormatError, match="longer than a lifetime"):
        parse_duration("1e50")
    with pytest.raises(FormatError, match="larger than any disk"):
        parse_size("999999999TiB")


@given(st.integers(0, 10**12))
def test_a_size_that_is_shown_reads_as_itself(size: int) -> None:
    assert parse_size(show_size(size)) == size


@given(st.integers(0, 10**9))
def test_a_duration_that_is_shown_reads_as_itself(milliseconds: int) -> None:
    assert parse_duration(show_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, rel=1e-8)


@given(st.text(max_size=40))
@pytest.mark.parametrize("hint", [int, float, bool, Seconds, Bytes, Mode, Address, Order])
def test_no_text_breaks_a_form(hint: Any, text: str) -> None:
    with contextlib.suppress(FormatError):
        parse(hint, text)


@pytest.mark.parametrize(("text", "mode"), [("0660", 0o660), ("660", 0o660), ("0o600", 0o600), ("0777", 0o777)])
def test_a_mode_is_octal_however_it_is_written(text: str, mode: int) -> None:
    assert parse(Mode, text) == mode


@pytest.mark.parametrize("text", ["0680", "rw-rw----", "-1", ""])
def test_what_is_no_octal_mode_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="octal"):
        parse(Mode, text)


@pytest.mark.parametrize("text", ["true", "yes", "on", "True", "ON"])
def test_all_of_yamls_words_for_true_are_true(text: str) -> None:
    assert parse(bool, text) is True


@pytest.mark.parametrize("text", ["0500", "1e3", "1.0", "0x10", "five", "", "1__0", "9" * 30])
def test_a_whole_number_has_one_way_of_being_written(text: str) -> None:
    with pytest.raises(FormatError, match="is not a whole number"):
        parse(int, text)


def test_a_whole_number_may_have_underscores_between_its_digits() -> None:
    assert parse(int, "20_000") == 20000


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:4771", ("127.0.0.1", 4771)),
        ("[::1]:80", ("::1", 80)),
        ("host:0", ("host", 0)),
        ("::1:80", None),
        ("host", None),
        (":80", None),
        ("host:65536", None),
        ("host:８０", None),
        ("a b:80", None),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, parts: tuple[str, int] | None) -> None:
    assert split_address(text) == parts
