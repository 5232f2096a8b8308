"""An error in a line."""

from __future__ import annotations

import linecache
import subprocess
from unittest.mock import patch

import pytest
from hangbisect.rank.tracebacks import format_error, summarize_error


def test_it_is_its_kind_and_the_first_line_of_its_words() -> None:
    assert format_error(ValueError("no such layer\nfor more see")) == "ValueError: no such layer"


def test_where_it_was_raised_is_the_innermost_frame() -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int("x")
    assert summarize_error(caught.value).endswith(
        f"(test_failing.py:{caught.traceback[-1].lineno + 1})"
    )


def test_notes_that_were_added_to_it_do_not_stand_for_it() -> None:
    error = RuntimeError("it failed")
    error.add_note("with input 3")
    assert format_error(error) == "RuntimeError: it failed"


def test_of_a_syntax_error_it_is_the_words_and_not_the_line_of_code() -> None:
    with pytest.raises(SyntaxError) as caught:
        compile("a b", "given.py", "exec")
    assert format_error(caught.value).startswith("SyntaxError: invalid syntax")


class HasNoWords(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_of_one_without_words_it_is_the_kind_alone() -> None:
    assert format_error(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert format_error(HasNoWords()).endswith("HasNoWords: <exception str() failed>")


def test_what_is_a_library_s_own_goes_by_its_module() -> None:
    assert format_error(subprocess.TimeoutExpired("gcc", 3)).startswith(
        "subprocess.TimeoutExpired: Command 'gcc' timed out"
    )


def test_neither_the_errors_before_it_nor_their_sources_are_read() -> None:
    error = ValueError("bad")
    with pytest.raises(ValueError, match="invalid literal") as before:
        int("x")
    error.__context__ = before.value
    with patch.object(linecache, "checkcache", side_effect=AssertionError):
        assert format_error(error) == "ValueError: bad"
