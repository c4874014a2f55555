"""Text for people."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.model.text import age, clean, clean_json, fit, short


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0"), (999, "999"), (1000, "1.0k"), (12_345, "12.3k"), (999_999, "1.0M"), (4.5e9, "4.5G")]
)
def test_numbers_are_short(number: float, said: str) -> None:
    assert short(number) == said


@given(st.floats(0, 1e11))
def test_short_numbers_are_never_longer_than_five(number: float) -> None:
    assert len(short(number)) <= 5


@pytest.mark.parametrize(
    ("ms", "said"), [(0, "0.0s"), (42_000, "42s"), (192_000, "3m12s"), (7_500_000, "2h05m"), (356_400_000, "4d03h")]
)
def test_ages_are_short(ms: int, said: str) -> None:
    assert age(ms) == said


def test_text_that_does_not_fit_is_cut_and_stays_on_its_line() -> None:
    assert fit("a\nbcdef", 4) == "a b…"
    assert fit("abc", 0) == ""


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("größe 3 ✓ 日本", "größe 3 ✓ 日本"),
        ("a\nb\tc\r\u2028d", "a b c  d"),
        ("\x1b[2Ka\x07", "�[2Ka�"),
        ("\x9b31m \x7f", "�31m �"),
        ("pay\u202eexe.fdp\u2066\u200b", "pay�exe.fdp��"),
        ("\ud800", "�"),
    ],
)
def test_what_a_terminal_would_obey_is_replaced(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@given(st.text())
def test_cleaned_text_prints_and_is_as_long_as_before(text: str) -> None:
    assert clean(text).isprintable()
    assert len(clean(text)) == len(text)


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_cleaned_json_prints_and_means_the_same(value: object) -> None:
    text = clean_json(json.dumps(value, ensure_ascii=False))
    assert text.isprintable()
    assert json.loads(text) == value
