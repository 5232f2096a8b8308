"""Anybody's text stays text, as GitHub renders it."""

from __future__ import annotations

import pytest
from hangbisect.report.issue_sections import (
    code_block,
    details_block,
    escape_line,
    html_code,
    inline_code,
    markdown_table,
    quote_command,
)
from hangbisect.report.run_reader.run_files import split_lines
from hypothesis import example, given
from hypothesis import strategies as st

from .rendering import OURS, rendered

HOSTILE = [
    "<script>alert(1)</script>",
    "</details></summary>",
    "```\n# title\n```",
    "````` `x` ``",
    "@torvalds #1 owner/repo#2",
    "| a | b |",
    "\\| \\` \\",
    "![x](http://example.org/x.png) [y](javascript:z)",
    "\x1b[31mred\x1b[0m\x07\x00",
    "line\r\nline\rline\u2028line\x85line\x0bline",
    "\u202egnp.exe",
    "&lt;script&gt; &#64;ada",
    "<!-- ",
    "<![CDATA[",
    "<?php",
    "~~~",
    "- [ ] x",
    "    code",
    "> quote",
    "***",
    "a_b_c *d*",
    "$(rm -rf /) `id`",
]


def on_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("text", HOSTILE)
def test_in_a_block_every_line_is_text(text: str) -> None:
    lines = text.split("\n")
    found = rendered(f"before\n\n{details_block('ours', code_block(lines))}\n\n*after*")
    assert {*found.tags} <= OURS
    assert found.attributes == []
    assert found.code == "".join(escape_line(line) + "\n" for line in lines)
    assert "after" in found.plain
    assert "em" in found.tags  # the block was over by then


@pytest.mark.parametrize("text", HOSTILE)
def test_in_a_cell_it_is_text_and_ends_no_cell(text: str) -> None:
    found = rendered(
        markdown_table(
            ["a", "b"], [[inline_code(text), "end"], [inline_code("x"), inline_code(text)]]
        )
    )
    assert {*found.tags} <= OURS
    assert found.rows == [2, 2, 2]
    shown = on_one_line(escape_line(text))
    assert on_one_line(found.code) == on_one_line(f"{shown}x{shown}")


@pytest.mark.parametrize("text", HOSTILE)
def test_in_a_summary_it_is_text(text: str) -> None:
    found = rendered(details_block(f"rank 1: {html_code(text)}", "*body*"))
    assert {*found.tags} <= OURS
    assert "em" in found.tags
    assert on_one_line(found.code) == on_one_line(escape_line(text))


@given(st.text(max_size=40))
@example("`")
@example("``|`")
def test_any_text_in_a_line_and_in_a_block(text: str) -> None:
    found = rendered(f"{inline_code(text)}\n\n{code_block([text])}")
    assert {*found.tags} <= OURS
    shown = on_one_line(escape_line(text))
    assert on_one_line(found.code) == on_one_line(f"{shown}{escape_line(text)}")


def test_what_cannot_be_printed_is_shown_as_an_escape() -> None:
    assert escape_line("a\x1b[31m\u202eb\tc") == r"a\x1b[31m\u202eb    c"


def test_a_line_of_a_megabyte_is_cut_and_it_is_said() -> None:
    assert escape_line("x" * (1 << 20)) == "x" * 500 + " ... (1,048,076 more characters)"


def test_lines_end_at_line_feeds_alone() -> None:
    assert split_lines("a\x0bb\u2028c\r\nd\n") == ["a\x0bb\u2028c", "d"]
    assert split_lines(" \n") == []


def test_a_command_is_one_line_that_a_shell_takes_as_it_was() -> None:
    import subprocess

    words = ["a b", "it's", "new\nline", "\x1b[31m", "$HOME `id` \\", "\u202e", "", "plain"]
    line = quote_command(words)
    assert "\n" not in line
    assert line.isprintable()
    shell = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True, timeout=60
    )
    assert shell.stdout.decode().split("\0")[:-1] == words
