"""Python sources, read and parsed once, and the way in one to a line."""

from __future__ import annotations

import ast
from functools import lru_cache

LARGEST_SOURCE = 1 << 21  # bytes


@lru_cache(maxsize=64)
def read_source(path: str) -> str:
    """Return a source file's text, "" if it cannot be read. May block with its disk."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(LARGEST_SOURCE)
    except (OSError, ValueError):
        return ""


@lru_cache(maxsize=64)
def parse_source(source: str) -> ast.AST | None:
    """Return a source as a tree, None if it is no Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def find_enclosing_nodes(tree: ast.AST, line: int) -> list[ast.AST]:
    """Return the nodes around `line`, outermost first."""
    way, node = [tree], tree
    while True:
        inside = [n for n in ast.iter_child_nodes(node) if _spans(n, line)]
        if not inside:
            return way
        # Of `if x: y` on one line, y: what is called stands there more often than in x.
        node = min(inside, key=lambda n: (_count_lines(n), not isinstance(n, ast.stmt)))
        way.append(node)


def find_name(node: ast.AST) -> str:
    """Return the name of a variable, or of an attribute whatever it belongs to; else ""."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def find_called_name(call: ast.Call) -> str:
    """Return the last name of what is called, "get" of `os.environ.get(...)`; "" of none."""
    return find_name(call.func)


def _spans(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line <= last


def _count_lines(node: ast.AST) -> int:
    return getattr(node, "end_lineno", 0) - getattr(node, "lineno", 0)
