"""An error in a line."""

from __future__ import annotations

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
