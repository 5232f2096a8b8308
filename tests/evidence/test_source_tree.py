"""Sources of Python, read and parsed, and the nodes around a line."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

import pytest
from hangbisect.evidence.source_tree import (
    LARGEST_SOURCE,
    find_enclosing_nodes,
    parse_source,
    read_source,
)
from hypothesis import given
from hypothesis import strategies as st

SOURCE = """\
def f(x):
    if x: barrier()
    for one in x:
        send(
            one,
            two)
    return x
"""


def kinds(line: int) -> list[str]:
    tree = parse_source(SOURCE)
    assert tree is not None
    return [type(node).__name__ for node in find_enclosing_nodes(tree, line)][:4]


@pytest.mark.parametrize(
    ("line", "way"),
    [
        (1, ["Module", "FunctionDef"]),
        # Of what stands on one line with its condition, the call: that is where a rank waits.
        (2, ["Module", "FunctionDef", "If", "Expr"]),
        (5, ["Module", "FunctionDef", "For", "Expr"]),  # in the middle of a call
        (7, ["Module", "FunctionDef", "Return", "Name"]),
        (99, ["Module"]),
    ],
)
def test_the_nodes_around_a_line(line: int, way: list[str]) -> None:
    assert kinds(line)[: len(way)] == way


def test_what_cannot_be_read_is_empty_and_what_is_no_python_has_no_tree(tmp_path: Path) -> None:
    assert read_source(str(tmp_path / "none.py")) == ""
    assert read_source(str(tmp_path)) == ""  # a folder
    assert read_source("\0") == ""
    (tmp_path / "latin.py").write_bytes(b"# \xe9\nx = 1\n")
    assert parse_source(read_source(str(tmp_path / "latin.py"))) is not None
    (tmp_path / "long.py").write_text("#" * (LARGEST_SOURCE + 10))
    assert len(read_source(str(tmp_path / "long.py"))) == LARGEST_SOURCE
    assert parse_source("def (") is None
    assert parse_source("x = '\0'") is None
    assert parse_source("(" * 100_000) is None


@given(st.integers(-3, 12))
def test_each_node_of_the_way_stands_in_the_one_before_and_around_the_line(line: int) -> None:
    tree = parse_source(SOURCE)
    assert tree is not None
    way = find_enclosing_nodes(tree, line)
    assert way[0] is tree
    for outer, inner in pairwise(way):
        assert inner in ast.iter_child_nodes(outer)
        assert getattr(inner, "lineno", line) <= line <= getattr(inner, "end_lineno", line)
