"""Whether a line of the job's source stands below an `except`: there an exception was caught.

A rank that sleeps there has failed before, and nobody was told: no log needs to say so.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import lru_cache

from ..facts import Frame, Look, Thread
from .source import source_of, tree_of, way_to

MOST_FRAMES = 8  # of the main thread, the innermost of the job's own
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/(?:lib|lib64)/python\d+(?:\.\d+)?/|^<")
_LONGEST = 80  # characters


def with_handlers(look: Look) -> Look:
    """Return a look with the handlers that the main thread's own lines stand in. May block."""
    main = look.main
    if main is None:
        return look
    own = [f for f in main.frames if not f.native and not _LIBRARY.search(f.file)]
    known = {frame: found for frame in own[:MOST_FRAMES] if (found := _handler_of(frame))}
    if not known:
        return look
    threads = tuple(_told(one, known) if one is main else one for one in look.threads)
    return replace(look, threads=threads)


def _told(thread: Thread, known: dict[Frame, str]) -> Thread:
    frames = (replace(f, handler=known[f]) if f in known else f for f in thread.frames)
    return replace(thread, frames=tuple(frames))


def _handler_of(frame: Frame) -> str:
    source = source_of(frame.file)
    return handler_at(source, frame.line) if source else ""


@lru_cache(maxsize=1 << 12)  # ranks stand in few different lines
def handler_at(source: str, line: int) -> str:
    """Return the handler of exceptions in which `line` stands, "except OSError"; "" for none in
    the same function, or for what is no Python. Never raises.
    """
    tree = tree_of(source)
    for node in reversed(way_to(tree, line)) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return ""
        if isinstance(node, ast.ExceptHandler) and any(_in(one, line) for one in node.body):
            kind = f" {ast.unparse(node.type)}" if node.type is not None else ""
            return f"except{kind}"[:_LONGEST]
    return ""


def _in(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)
