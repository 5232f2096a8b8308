"""The words in which toggles are told to processes."""

from __future__ import annotations

from hangbisect.base.variables import format_toggle_values, parse_toggle_values
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.from_regex(r"[a-z_]+", fullmatch=True)
VALUES = st.from_regex(r"[a-z0-9?_-]+", fullmatch=True)


@given(st.dictionaries(NAMES, VALUES))
def test_what_is_written_is_read(setting: dict[str, str]) -> None:
    assert parse_toggle_values(format_toggle_values(setting)) == setting


def test_what_says_nothing_is_left_out() -> None:
    assert parse_toggle_values("") == {}
    assert parse_toggle_values("a, =3,b=,c=1 , d = 2") == {"c": "1", "d": "2"}
