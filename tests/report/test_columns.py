"""Tables as text: whatever is in them, no row is wider than there is room for."""

from __future__ import annotations

import re

import pyte
from hangbisect.base.columns import Column, fitted, in_columns, text_width
from hangbisect.base.words import join_lines
from hypothesis import example, given
from hypothesis import strategies as st

WORDS = st.text(max_size=40).map(join_lines)


def test_numbers_stand_on_the_right_and_long_words_are_cut_first() -> None:
    columns = (Column("name"), Column("s", right=True, is_whole=True))
    rows = [[("a long name", ""), ("7", "")], [("b", ""), ("1,024", "")]]
    assert in_columns(columns, rows) == [
        "name             s",
        "a long name      7",
        "b            1,024",
    ]
    assert in_columns(columns, rows, 12) == ["name       s", "a lo…      7", "b      1,024"]


def test_no_column_is_wider_than_it_may_be() -> None:
    assert in_columns([Column(most=4), Column()], [[("abcdefg", ""), ("x", "")]]) == ["", "abc…  x"]


def test_a_style_ends_with_its_text() -> None:
    assert in_columns([Column("a"), Column()], [[("b", "red"), ("", "dim")]], head="dim") == [
        "\x1b[2ma\x1b[0m",
        "\x1b[31mb\x1b[0m",
    ]


def test_a_wide_character_takes_two_columns() -> None:
    assert text_width("深い") == 4
    assert fitted("深い学習", 5) == "深い…"
    assert text_width("e\u0301") == 1


@example([("", "\U0001f1e6\U0001f1e6", "0")], 8)  # a flag
@given(st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=5), st.integers(1, 60))
def test_no_row_is_wider_than_the_terminal(rows: list[tuple[str, str, str]], width: int) -> None:
    columns = (Column("one", most=9), Column("two", right=True, is_whole=True), Column("three"))
    cells = [[(text, "bold") for text in row] for row in rows]
    for line in in_columns(columns, cells, width):
        screen = pyte.Screen(max(width, 4) + 1, 3)
        pyte.Stream(screen).feed(line)
        assert screen.cursor.y == 0
        assert re.sub(r"\x1b\[[0-9;]*m", "", line).isprintable()
